(** * Lemmas on the order of pending operations

    Idea. If an operation landed, all that it waited for landed; and if all
    operations that touch a page or a word landed, the cut shows there what the
    firmware's tables say ([agree]). This is how a check on the tables carries
    over to every cut. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media.

Lemma landedb_iff : forall outs j, landedb outs j = true <-> landed outs j.
Proof.
  unfold landedb, landed; intros; destruct (nth_error outs j) as [[]|]; split; congruence.
Qed.

Lemma forallb_landed : forall outs ws,
  forallb (landedb outs) ws = true <-> (forall j, In j ws -> landed outs j).
Proof.
  intros; rewrite forallb_forall; split; intros H j Hj; apply landedb_iff; auto.
Qed.

Lemma landed_lt : forall outs j, landed outs j -> j < length outs.
Proof. unfold landed; intros; apply nth_error_Some; congruence. Qed.

Lemma landed_snoc : forall outs o j,
  j < length outs -> (landed (outs ++ [o]) j <-> landed outs j).
Proof. unfold landed; intros; rewrite nth_error_app1; tauto. Qed.

Lemma landed_snoc_up : forall outs o j, landed outs j -> landed (outs ++ [o]) j.
Proof. intros; apply landed_snoc; auto using landed_lt. Qed.

Lemma landed_last : forall outs o, landed (outs ++ [o]) (length outs) <-> o = Whole.
Proof.
  unfold landed; intros; rewrite nth_error_app2, Nat.sub_diag by lia; simpl.
  split; congruence.
Qed.

(** Each operation waits for earlier ones only. *)
Definition wf (p : list pending) : Prop :=
  forall i q, nth_error p i = Some q -> forall j, In j (waits q) -> j < i.

Lemma in_positions_from : forall f p i k,
  In i (positions_from k f p) <-> exists q, k <= i /\ nth_error p (i - k) = Some q /\ f (op q) = true.
Proof.
  intros f p i; induction p as [|x p IH]; intros k; simpl.
  - split; [easy|]; intros (q & _ & H & _); destruct (i - k); discriminate.
  - assert (E : In i (positions_from (S k) f p) <->
              exists q, k < i /\ nth_error (x :: p) (i - k) = Some q /\ f (op q) = true).
    { rewrite IH; split; intros (q & H1 & H2 & H3); exists q; repeat split; auto; try lia;
        replace (i - k) with (S (i - S k)) in * by lia; auto. }
    destruct (f (op x)) eqn:Ef; simpl; rewrite E; split.
    + intros [<- | (q & H1 & H)]; [exists x; rewrite Nat.sub_diag; auto | exists q; split; [lia | auto]].
    + intros (q & H1 & H); destruct (Nat.eq_dec k i); auto; right; exists q; split; [lia | auto].
    + intros (q & H1 & H); exists q; split; [lia | auto].
    + intros (q & H1 & H2 & H3); exists q; split; auto; destruct (Nat.eq_dec k i); [|lia].
      subst; rewrite Nat.sub_diag in H2; simpl in H2; congruence.
Qed.

Lemma in_positions : forall f p i,
  In i (positions f p) <-> exists q, nth_error p i = Some q /\ f (op q) = true.
Proof.
  unfold positions; intros; rewrite in_positions_from, Nat.sub_0_r; split; intros (q & H).
  - exists q; tauto.
  - exists q; split; [lia | auto].
Qed.

Lemma positions_lt : forall f p i, In i (positions f p) -> i < length p.
Proof.
  intros f p i H; apply in_positions in H as (q & E & _); apply nth_error_Some; congruence.
Qed.

Lemma positions_snoc : forall f p q i,
  In i (positions f (p ++ [q])) <->
  In i (positions f p) \/ (i = length p /\ f (op q) = true).
Proof.
  intros; rewrite !in_positions; split.
  - intros (r & E & H).
    destruct (Nat.lt_ge_cases i (length p)).
    + rewrite nth_error_app1 in E by auto; left; eauto.
    + rewrite nth_error_app2 in E by auto.
      destruct (i - length p) as [|k] eqn:K; simpl in E.
      * injection E as <-; right; split; auto; lia.
      * destruct k; discriminate.
  - intros [(r & E & H) | [-> H]].
    + exists r; rewrite nth_error_app1; auto; apply nth_error_Some; congruence.
    + exists q; rewrite nth_error_app2, Nat.sub_diag by lia; auto.
Qed.

Lemma wf_nil : wf [].
Proof. intros [|i] q H; discriminate. Qed.

Lemma wf_issue : forall o ws p, wf p -> wf (issue o ws p).
Proof.
  intros o ws p H i q E j Hj; unfold issue in E.
  destruct (Nat.lt_ge_cases i (length p)).
  - rewrite nth_error_app1 in E by auto; eauto.
  - rewrite nth_error_app2 in E by auto.
    destruct (i - length p) as [|k] eqn:K; simpl in E; [| destruct k; discriminate].
    injection E as <-; simpl in Hj; apply in_app_or in Hj as [Hj | Hj].
    + apply filter_In in Hj as [_ Hj]; apply Nat.ltb_lt in Hj; lia.
    + apply positions_lt in Hj; lia.
Qed.

Lemma length_issue : forall o ws p, length (issue o ws p) = S (length p).
Proof. intros; unfold issue; rewrite app_length; simpl; lia. Qed.

(** ** Cuts of a list with one more operation *)

Lemma combine_snoc : forall A B (p : list A) (q : A) (outs : list B) (o : B),
  length p = length outs -> combine (p ++ [q]) (outs ++ [o]) = combine p outs ++ [(q, o)].
Proof.
  induction p; destruct outs; simpl; intros; try discriminate; auto.
  rewrite IHp; auto.
Qed.

Lemma view_snoc : forall b p q outs o, length p = length outs ->
  view b (p ++ [q]) (outs ++ [o]) = land (view b p outs) (op q) o.
Proof. intros; unfold view; rewrite combine_snoc, fold_left_app by auto; auto. Qed.

Lemma now_snoc : forall b p q, now b (p ++ [q]) = land (now b p) (op q) Whole.
Proof.
  intros; unfold now, all_whole; rewrite map_app; apply view_snoc.
  rewrite map_length; auto.
Qed.

Lemma now_issue : forall b o ws p, now b (issue o ws p) = land (now b p) o Whole.
Proof. intros; apply now_snoc. Qed.

Lemma snoc_inv : forall A (l : list A) n, length l = S n -> exists l' x, l = l' ++ [x].
Proof.
  intros A l n H; destruct (exists_last (l := l)) as (l' & x & E); eauto.
  intros ->; discriminate.
Qed.

Lemma in_combine_nth : forall A B (p : list A) (outs : list B) q o,
  In (q, o) (combine p outs) ->
  exists i, nth_error p i = Some q /\ nth_error outs i = Some o.
Proof.
  induction p; destruct outs; simpl; intros q o H; try tauto.
  destruct H as [H | H].
  - injection H as -> ->; exists 0; auto.
  - apply IHp in H as (i & ? & ?); exists (S i); auto.
Qed.

Lemma nth_in_combine : forall A B (p : list A) (outs : list B) i q o,
  nth_error p i = Some q -> nth_error outs i = Some o -> In (q, o) (combine p outs).
Proof.
  induction p; destruct outs, i; simpl; intros; try discriminate; auto.
  - left; congruence.
  - right; eauto.
Qed.

Lemma may_cut_length : forall p outs, may_cut p outs = true -> length p = length outs.
Proof. unfold may_cut; intros p outs H; apply andb_prop in H as [H _]; now apply Nat.eqb_eq. Qed.

Lemma may_cut_snoc : forall p q outs', wf (p ++ [q]) -> may_cut (p ++ [q]) outs' = true ->
  exists outs o, outs' = outs ++ [o] /\ length p = length outs /\ may_cut p outs = true
    /\ may_end outs (q, o) = true.
Proof.
  intros p q outs' Hwf H.
  pose proof (may_cut_length _ _ H) as L.
  rewrite app_length in L; simpl in L.
  destruct (snoc_inv _ outs' (length p)) as (outs & o & ->); [lia|].
  rewrite app_length in L; simpl in L.
  assert (Lp : length p = length outs) by lia.
  unfold may_cut in H; apply andb_prop in H as [_ H].
  rewrite combine_snoc, forallb_app in H by auto; simpl in H.
  apply andb_prop in H as [H Hq]; rewrite andb_true_r in Hq.
  assert (Same : forall r x ws i, nth_error (p ++ [q]) i = Some r -> ws = waits r ->
            may_end (outs ++ [o]) (r, x) = true -> may_end outs (r, x) = true).
  { intros r x ws i Hi -> Hm.
    assert (Hi' : i < length (p ++ [q])) by (apply nth_error_Some; congruence).
    rewrite app_length in Hi'; simpl in Hi'.
    assert (W : forallb (landedb (outs ++ [o])) (waits r) = true ->
                forallb (landedb outs) (waits r) = true).
    { rewrite !forallb_landed; intros Hl j Hj; specialize (Hl j Hj).
      apply landed_snoc in Hl; auto. specialize (Hwf _ _ Hi _ Hj); lia. }
    destruct x; simpl in *; auto.
    apply andb_prop in Hm as [Hm Hm2]; rewrite Hm; simpl; auto. }
  exists outs, o; repeat split; auto.
  - unfold may_cut; rewrite (proj2 (Nat.eqb_eq _ _) Lp); simpl.
    apply forallb_forall; intros [r x] Hr.
    rewrite forallb_forall in H; specialize (H _ Hr).
    destruct (in_combine_nth _ _ _ _ _ _ Hr) as (i & Hi & _).
    apply (Same r x (waits r) i); auto.
    rewrite nth_error_app1; auto; apply nth_error_Some; congruence.
  - apply (Same q o (waits q) (length p)); auto.
    rewrite nth_error_app2, Nat.sub_diag by lia; reflexivity.
Qed.

(** The form in which the steps use it. *)
Lemma cut_issue : forall b p o ws outs', wf p -> may_cut (issue o ws p) outs' = true ->
  exists outs r, outs' = outs ++ [r] /\ length p = length outs /\ may_cut p outs = true
    /\ view b (issue o ws p) outs' = land (view b p outs) o r
    /\ (r <> Absent -> (forall j, In j ws -> j < length p -> landed outs j)
                    /\ (forall j, In j (positions (conflict o) p) -> landed outs j))
    /\ (r = TornUp -> is_store o = false).
Proof.
  intros b p o ws outs' Hwf H.
  destruct (may_cut_snoc p _ outs' (wf_issue o ws p Hwf) H) as (outs & r & -> & L & Hc & He).
  exists outs, r; repeat split; auto.
  - unfold issue; apply view_snoc; auto.
  - intros j Hj Hlt; destruct r; simpl in He; try tauto.
    + rewrite forallb_landed in He; apply He, in_or_app; left; apply filter_In.
      split; auto; now apply Nat.ltb_lt.
    + rewrite forallb_app, !andb_true_iff, forallb_landed in He.
      apply He, filter_In; split; auto; now apply Nat.ltb_lt.
  - intros j Hj; destruct r; simpl in He; try tauto.
    + rewrite forallb_landed in He; apply He, in_or_app; auto.
    + rewrite forallb_app, !andb_true_iff, !forallb_landed in He; apply He; auto.
  - intros ->; simpl in He; destruct (is_store o); auto; discriminate.
Qed.

(** All has landed: this is one of the cuts. *)
Lemma may_cut_now : forall p, wf p -> may_cut p (all_whole p) = true.
Proof.
  intros p Hwf; unfold may_cut, all_whole; rewrite map_length, Nat.eqb_refl; simpl.
  apply forallb_forall; intros [q o] H.
  destruct (in_combine_nth _ _ _ _ _ _ H) as (i & Hi & Ho).
  assert (o = Whole) as ->.
  { apply nth_error_In, in_map_iff in Ho as (? & ? & ?); auto. }
  simpl; apply forallb_landed; intros j Hj; unfold landed.
  assert (j < i) by eauto.
  assert (i < length p) by (apply nth_error_Some; congruence).
  rewrite nth_error_map; destruct (nth_error p j) eqn:E; auto.
  apply nth_error_None in E; lia.
Qed.

Lemma landed_now : forall p j, j < length p -> landed (all_whole p) j.
Proof.
  unfold landed, all_whole; intros; rewrite nth_error_map.
  destruct (nth_error p j) eqn:E; auto. apply nth_error_None in E; lia.
Qed.

(** ** Agreement at one key *)

Definition look (img : image) (k : key) : cell + word :=
  match k with KCell a => inl (cells img a) | KWord w => inr (words img w) end.

Lemma land_untouched : forall img o r k, touches o k = false -> look (land img o r) k = look img k.
Proof.
  intros img o r k H; destruct o, k; destruct r; simpl in *; auto.
  - destruct (cells img a); simpl; destruct (addr_dec a a0); try discriminate;
      destruct (addr_dec a0 a); congruence.
  - destruct (addr_dec a a0); try discriminate; destruct (addr_dec a0 a); congruence.
  - destruct (cells img a); auto.
  - rewrite H; auto.
  - rewrite H; auto.
  - destruct (loc_dec w w0); try discriminate; destruct (loc_dec w0 w); congruence.
Qed.

Lemma agree : forall b k p outs, length p = length outs ->
  (forall j, In j (touching k p) -> landed outs j) ->
  look (view b p outs) k = look (now b p) k.
Proof.
  intros b k p; induction p as [|q p IH] using rev_ind; intros outs L H.
  - destruct outs; try discriminate; reflexivity.
  - rewrite app_length in L; simpl in L.
    destruct (snoc_inv _ outs (length p)) as (outs' & o & ->); [lia|].
    rewrite app_length in L; simpl in L.
    assert (Lp : length p = length outs') by lia.
    rewrite view_snoc, now_snoc by auto.
    assert (Same : look (view b p outs') k = look (now b p) k).
    { apply IH; auto; intros j Hj.
      assert (j < length outs') by (rewrite <- Lp; eapply positions_lt; eauto).
      apply (landed_snoc outs' o); auto.
      apply H, positions_snoc; auto. }
    destruct (touches (op q) k) eqn:T.
    + assert (o = Whole) as ->.
      { apply (landed_last outs'); rewrite <- Lp; apply H, positions_snoc; auto. }
      destruct (op q), k; simpl in *; try discriminate; injection Same as Same.
      * destruct (addr_dec a0 a) as [->|]; try discriminate.
        rewrite Same; destruct (cells (now b p) a); simpl;
          destruct (addr_dec a a); auto; congruence.
      * rewrite T; auto.
      * destruct (loc_dec w w0), (loc_dec w0 w); auto; congruence.
    + rewrite !land_untouched; auto.
Qed.

(** The medium's order covers the keys that the operation touches itself. *)
Lemma touches_conflict : forall x y k,
  touches x k = true -> touches y k = true -> conflict x y = true.
Proof.
  intros x y k; destruct x, y, k; simpl; try congruence; unfold in_block;
    repeat match goal with
    | |- context [addr_dec ?a ?b] => destruct (addr_dec a b); subst
    | |- context [loc_dec ?a ?b] => destruct (loc_dec a b); subst
    end; try congruence; rewrite ?andb_true_iff, ?Nat.eqb_eq; intuition congruence.
Qed.

Lemma agree_own : forall b k o p outs, length p = length outs ->
  touches o k = true ->
  (forall j, In j (positions (conflict o) p) -> landed outs j) ->
  look (view b p outs) k = look (now b p) k.
Proof.
  intros b k o p outs L T H; apply agree; auto.
  intros j Hj; apply H; apply in_positions in Hj as (q & E & Tq); apply in_positions.
  exists q; split; auto; eapply touches_conflict; eauto.
Qed.

Lemma agree_cell : forall b a p outs, length p = length outs ->
  (forall j, In j (touching (KCell a) p) -> landed outs j) ->
  cells (view b p outs) a = cells (now b p) a.
Proof. intros b a p outs L H; apply (agree b (KCell a)) in H; auto; simpl in H; congruence. Qed.

Lemma agree_word : forall b w p outs, length p = length outs ->
  (forall j, In j (touching (KWord w) p) -> landed outs j) ->
  words (view b p outs) w = words (now b p) w.
Proof. intros b w p outs L H; apply (agree b (KWord w)) in H; auto; simpl in H; congruence. Qed.

(** If everything landed, this is what the tables say. *)
Lemma all_landed : forall p outs, length p = length outs ->
  (forall j, j < length p -> landed outs j) -> outs = all_whole p.
Proof.
  induction p; destruct outs; simpl; intros L H; try discriminate; auto.
  unfold all_whole; simpl; f_equal.
  - specialize (H 0); unfold landed in H; simpl in H.
    assert (Some o = Some Whole) by (apply H; lia); congruence.
  - apply IHp; [lia|]; intros j Hj; apply (H (S j)); lia.
Qed.

Lemma in_everything : forall p j, In j (everything p) <-> j < length p.
Proof.
  unfold everything; intros; split; [apply positions_lt|].
  intros H; apply in_positions; destruct (nth_error p j) eqn:E; eauto.
  apply nth_error_None in E; lia.
Qed.

(** ** Why the order of landing does not matter

    [view] lets operations land in the order of issue, whereas on the device they
    land in any order that the waits leave. Two operations that do not conflict
    give the same image in either order; those that do have an order. *)

Lemma land_local : forall o r img img' k, look img k = look img' k ->
  look (land img o r) k = look (land img' o r) k.
Proof.
  intros o r img img' k H; destruct (touches o k) eqn:T; [|rewrite !land_untouched; auto].
  destruct o as [a p | sb b | w v], k as [y | y]; simpl in *; try discriminate;
    injection H as H; destruct r; simpl; try congruence.
  - destruct (addr_dec y a) as [-> | N]; [|discriminate].
    rewrite H; destruct (cells img' a); simpl; destruct (addr_dec a a); congruence.
  - destruct (addr_dec y a); congruence.
  - rewrite T; auto.
  - rewrite T; auto.
  - destruct (loc_dec y w); congruence.
Qed.

Theorem landing_commutes : forall img x y rx ry k, conflict x y = false ->
  look (land (land img x rx) y ry) k = look (land (land img y ry) x rx) k.
Proof.
  intros img x y rx ry k H; destruct (touches x k) eqn:Tx.
  - destruct (touches y k) eqn:Ty; [rewrite (touches_conflict _ _ _ Tx Ty) in H; discriminate|].
    rewrite (land_untouched _ y); auto; apply land_local; rewrite land_untouched; auto.
  - rewrite (land_untouched (land img y ry) x); auto; apply land_local; rewrite land_untouched; auto.
Qed.
