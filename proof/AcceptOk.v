(** * What the checker's shortcuts are worth

    Idea. [fstep] accepts no more than [step] ([fstep_step]). And if [covers]
    accepts an operation, then whatever cut the reported order allows: once that
    for which it reports to wait has landed, so has all that the model demands
    ([covers_lands]).

    Absent: the induction over a trace that joins the two. *)

From Coq Require Import List Arith Bool Lia FMapFacts.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds StepsAdd
  StepsWorld Theorems Accept.

Module NMF := FMapFacts.Facts NM.

Section AcceptOk.
Variable D : device.
Hypothesis on : sound_device D.

(** ** The table says what recovery does *)

Definition of_lpn (l : lpn) (ws : list witness) : list witness := filter (fun w => w_lpn w =? l) ws.

Lemma table_spec : forall ws l,
  match NM.find l (fold_left add_witness ws (NM.empty _)) with
  | None => of_lpn l ws = []
  | Some (n, c) => n = list_max (map w_num (of_lpn l ws)) /\
      exists w, find (fun w => (w_lpn w =? l) && (w_num w =? n)) ws = Some w /\ w_content w = c
  end.
Proof.
  assert (FA : forall (f : witness -> bool) l1 x, find f (l1 ++ [x]) =
            match find f l1 with Some w => Some w | None => if f x then Some x else None end).
  { intros f l1 x; induction l1 as [|y l1 IH]; simpl; auto; destruct (f y); auto. }
  assert (LM : forall l1 x, list_max (l1 ++ [x]) = Nat.max (list_max l1) x).
  { intros l1 x; rewrite list_max_app; simpl; lia. }
  intros ws l; induction ws as [|x ws IH] using rev_ind.
  - cbn; auto.
  - rewrite fold_left_app; simpl; set (t := fold_left add_witness ws (NM.empty _)) in *.
    unfold of_lpn in *; rewrite filter_app; simpl.
    assert (Other : w_lpn x <> l -> NM.find l (add_witness t x) = NM.find l t).
    { intros N; unfold add_witness; destruct (NM.find (w_lpn x) t) as [[n c]|];
        [destruct (n <? w_num x); auto|]; rewrite NMF.add_neq_o; auto. }
    destruct (Nat.eqb_spec (w_lpn x) l) as [E | N].
    2:{ rewrite Other by auto; rewrite app_nil_r; destruct (NM.find l t) as [[n c]|]; auto.
        destruct IH as (H1 & w & H2 & H3); split; auto; exists w; rewrite FA, H2; auto. }
    unfold add_witness; rewrite E; destruct (NM.find l t) as [[n c]|] eqn:Ef.
    + destruct IH as (H1 & w & H2 & H3); rewrite map_app; simpl; rewrite LM, <- H1.
      destruct (Nat.ltb_spec n (w_num x)) as [Hlt | Hge].
      * rewrite NMF.add_eq_o by auto; split; [lia|]; exists x; split; auto; rewrite FA.
        match goal with |- context [find ?f ws] => destruct (find f ws) as [y|] eqn:Ey end; [|rewrite E, !Nat.eqb_refl; auto].
        exfalso; apply find_some in Ey as [Hy Ey]; apply andb_prop in Ey as [Ey1 Ey2].
        apply Nat.eqb_eq in Ey2.
        assert (Hin : In (w_num y) (map w_num (filter (fun w => w_lpn w =? l) ws))).
        { apply in_map, filter_In; auto. }
        pose proof (proj1 (list_max_le (map w_num (filter (fun w => w_lpn w =? l) ws)) n)) as Hm.
        rewrite <- H1 in Hm; specialize (Hm (le_n _)); rewrite Forall_forall in Hm; apply Hm in Hin; lia.
      * rewrite Ef; split; [lia|]; exists w; rewrite FA, H2; auto.
    + rewrite NMF.add_eq_o by auto; rewrite IH; simpl; split; [lia|]; exists x; split; auto; rewrite FA.
      match goal with |- context [find ?f ws] => destruct (find f ws) as [y|] eqn:Ey end; [|rewrite E, !Nat.eqb_refl; auto].
      exfalso; apply find_some in Ey as [Hy Ey]; apply andb_prop in Ey as [Ey1 _].
      assert (Hin : In y (filter (fun w => w_lpn w =? l) ws)) by (apply filter_In; auto).
      rewrite IH in Hin; easy.
Qed.

Lemma t_newest_ok : forall img l, t_newest (table_of D img) l = newest D img l.
Proof.
  intros img l; unfold t_newest, table_of, newest; pose proof (table_spec (fvisible D img) l) as H.
  change (fvisible D img) with (visible D img) in *.
  destruct (NM.find l _) as [[n c]|]; [apply H|]; unfold of_lpn in H; rewrite H; auto.
Qed.

Lemma t_read_ok : forall img l, t_read (table_of D img) l = read D img l.
Proof.
  intros img l; unfold t_read, table_of, read; pose proof (table_spec (fvisible D img) l) as H.
  change (fvisible D img) with (visible D img) in *; unfold newest at 1.
  destruct (NM.find l _) as [[n c]|].
  - destruct H as (-> & w & H & <-); unfold of_lpn in H; rewrite H; auto.
  - destruct (find _ (visible D img)) as [y|] eqn:Ey; auto.
    exfalso; apply find_some in Ey as [Hy Ey]; apply andb_prop in Ey as [Ey1 _].
    assert (Hin : In y (of_lpn l (visible D img))) by (apply filter_In; auto).
    rewrite H in Hin; easy.
Qed.

Lemma forallb_same : forall A (f g : A -> bool) l, (forall x, f x = g x) -> forallb f l = forallb g l.
Proof. intros A f g l H; induction l; simpl; auto; rewrite H, IHl; auto. Qed.

Lemma fkeeps_ok : forall before after ls, fkeeps D before after ls = keeps D before after ls.
Proof.
  intros b a ls; unfold fkeeps, keeps; destruct ls; auto.
  apply forallb_same; intros x; rewrite !t_newest_ok; auto.
Qed.

Lemma own_shows : forall img a names n c l, data_at D img a = Some (names, n, c) -> in_range D a = true ->
  mem n (hidden D img) = false -> mem l names = true -> is_visible D img l n c = true.
Proof.
  intros img a names n c l H R Hh M; apply existsb_exists; exists (W l n c); split.
  - apply filter_In; simpl; rewrite Hh; split; auto; unfold raw; apply in_or_app; left.
    apply in_flat_map; exists a; split; [apply in_addrs; auto|].
    unfold of_page; rewrite H; apply in_map_iff; exists l; split; auto; apply mem_in; auto.
  - simpl; rewrite !Nat.eqb_refl; auto.
Qed.

(** ** [fstep] accepts no more than [step] *)

Lemma check_some : forall b b' (st : option state) st', (b = true -> b' = true) ->
  check b st = Some st' -> check b' st = Some st'.
Proof. intros [] b' st st' H E; simpl in E; [rewrite (H eq_refl); auto | discriminate]. Qed.

Lemma fstep_step : forall st act extra st',
  fstep D (image_now st) st act extra = Some st' -> step D st act extra = Some st'.
Proof.
  intros st act extra st' H; destruct act; auto; simpl in *.
  - rewrite fkeeps_ok in H; auto.
  - rewrite fkeeps_ok in H; auto.
  - destruct (number D st m [l]) as [[n ws]|]; auto.
    destruct (data_at D (image_now st) a) as [[[names n0] c']|]; auto.
    eapply check_some; [|exact H]; destruct src; unfold reads; simpl; auto; rewrite t_read_ok; auto.
  - destruct (data_at D (image_now st) a) as [[[names n0] c]|] eqn:Hd; auto.
    eapply check_some; [|exact H]; intros Hb; apply andb_prop in Hb as [Hf Hb]; rewrite Hf; simpl.
    apply orb_prop in Hb as [Hb | Hb]; auto.
    rewrite !andb_true_iff, Nat.eqb_eq, negb_true_iff in Hb; destruct Hb as [[[-> Hn] Hr] Hh].
    apply forallb_forall; intros l Hl; rewrite forallb_forall in Hn.
    eapply own_shows; eauto.
  - erewrite forallb_same in H by (intros; rewrite t_read_ok; reflexivity).
    erewrite map_ext in H by (intros; rewrite t_newest_ok; reflexivity); auto.
  - rewrite fkeeps_ok in H; auto.
  - rewrite t_newest_ok, t_read_ok in H; auto.
  - erewrite flat_map_ext in H by (intros; rewrite t_newest_ok; reflexivity); auto.
Qed.

(** ** Reported waits *)

Lemma add_all_in : forall l s i, NS.In i (add_all s l) -> NS.In i s \/ In i l.
Proof.
  induction l as [|x l IH]; simpl; intros s i H; auto.
  apply IH in H as [H | H]; auto; apply NS.add_spec in H as [-> | H]; auto.
Qed.

(** The operations of the trace, as the checker keeps them. *)
Record Kept (tp : list pending) (tw : list (nat * list nat)) (done : NS.t) : Prop := {
  k_waits : forall i ws, In (i, ws) tw -> exists q, nth_error tp i = Some q /\ incl ws (waits q);
  k_done : forall i, NS.In i done -> exists q, nth_error tp i = Some q /\ durable q = true
}.

Lemma whole_waits : forall tp outs i q j, may_cut tp outs = true -> nth_error tp i = Some q ->
  landed outs i -> In j (waits q) -> landed outs j.
Proof.
  intros tp outs i q j H Hq Hl Hj; unfold may_cut in H; apply andb_prop in H as [_ H].
  rewrite forallb_forall in H; specialize (H _ (nth_in_combine _ _ _ _ _ _ _ Hq Hl)); simpl in H.
  rewrite forallb_landed in H; auto.
Qed.

Lemma reach_lands : forall tp tw done outs ws, Kept tp tw done -> may_cut tp outs = true ->
  (forall j, In j ws -> landed outs j) -> forall i, NS.In i (reach tw ws) -> landed outs i.
Proof.
  intros tp tw done outs ws K H L.
  assert (G : forall rest need, incl rest tw -> (forall i, NS.In i need -> landed outs i) ->
            forall i, NS.In i (fold_left (fun need iw => if NS.mem (fst iw) need then add_all need (snd iw) else need) rest need) ->
            landed outs i).
  { induction rest as [|[i ws'] rest IH]; simpl; intros need Hin Hn j Hj; auto.
    apply (IH _ (fun x Hx => Hin x (or_intror Hx))) with (2 := Hj); intros k Hk.
    destruct (NS.mem i need) eqn:M; auto; apply add_all_in in Hk as [Hk | Hk]; auto.
    destruct (k_waits _ _ _ K i ws') as (q & Hq & Hi); [apply Hin; simpl; auto|].
    eapply whole_waits; eauto; apply Hn, NS.mem_spec; auto. }
  intros i; apply G; [intros x; auto|]; intros j Hj; apply add_all_in in Hj as [Hj | Hj]; auto.
  exfalso; eapply NS.empty_spec; eauto.
Qed.

Lemma durable_lands : forall tp outs i q, may_cut tp outs = true -> nth_error tp i = Some q ->
  durable q = true -> landed outs i.
Proof.
  intros tp outs i q H Hq Hd; apply (durable_landed tp outs [i] H); simpl; auto.
  rewrite Hq, Hd; auto.
Qed.

Lemma covers_lands : forall tp tw done own demanded outs, Kept tp tw done -> may_cut tp outs = true ->
  covers tw done own demanded = true -> (forall j, In j own -> landed outs j) ->
  forall j, In j demanded -> landed outs j.
Proof.
  intros tp tw done own demanded outs K H C L j Hj; unfold covers in C; rewrite forallb_forall in C.
  specialize (C j Hj); apply orb_prop in C as [C | C]; apply NS.mem_spec in C.
  - destruct (k_done _ _ _ K j C) as (q & Hq & Hd); eapply durable_lands; eauto.
  - eapply reach_lands; eauto.
Qed.

End AcceptOk.
