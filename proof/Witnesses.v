(** * Witnesses as a relation

    Idea. The proof speaks of [Wit img w], "recovery finds witness w", and of
    [Hid img n], "witnesses with number n do not count", where the executable
    functions speak of lists. This file shows that they are the same if all
    guards are on, and what that means for [newest] and [read]. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery.

Section Witnesses.
Variable D : device.
Hypothesis on : forall g, has D g = true.

(** A page of incarnation [i] is in place. *)
Definition place (img : image) (sb : nat) (i : incarnation) : Prop :=
  i = life img sb /\ cells img (head_at sb) = Page (Head (life img sb)).

Inductive Wit (img : image) : witness -> Prop :=
| WPage : forall a names n i c l,
    In a (addrs D) -> cells img a = Page (Data names n i c) ->
    place img (sb_of a) i -> In l names -> Wit img (W l n c)
| WEntry : forall s n a i l names n' i' c,
    s < slots D -> words img (EntA s) = Place n a i -> words img (EntB s) = Name l ->
    i = life img (sb_of a) ->
    cells img a = Page (Data names n' i' c) -> place img (sb_of a) i' -> Wit img (W l n c)
| WRecord : forall s n first len l,
    s < slots D -> words img (DeaA s) = Num n -> words img (DeaB s) = Range first len ->
    In l (seq first len) -> Wit img (W l n 0).

Definition Hid (img : image) (n : wsn) : Prop :=
  exists k, k < open_words D /\ (words img (OpenW k) = Num n \/ words img (AbortW k) = Num n).

Lemma in_addrs : forall a, In a (addrs D) <-> in_range D a = true.
Proof.
  intros [sb b o]; unfold addrs, in_range; simpl.
  rewrite !andb_true_iff, !Nat.ltb_lt, in_flat_map; split.
  - intros (sb' & H1 & H2); apply in_flat_map in H2 as (b' & H2 & H3).
    apply in_map_iff in H3 as (o' & E & H3); injection E as -> -> ->.
    rewrite in_seq in *; lia.
  - intros [[H1 H2] H3]; exists sb; rewrite in_seq; split; [lia|].
    apply in_flat_map; exists b; rewrite in_seq; split; [lia|].
    apply in_map_iff; exists o; rewrite in_seq; split; auto; lia.
Qed.

Lemma data_at_iff : forall img a names n c, data_at D img a = Some (names, n, c) <->
  exists i, cells img a = Page (Data names n i c) /\ place img (sb_of a) i.
Proof.
  intros; unfold data_at, head_ok, present, place; rewrite on; simpl.
  destruct (cells img a) as [| |[i|names' n' i c']]; try (split; [discriminate|]; intros (? & ? & _); discriminate).
  destruct (cells img (head_at (sb_of a))) as [| |[j|names'' n'' i'' c'']] eqn:E;
    try (split; [discriminate|]; intros (? & ? & _ & ?); discriminate).
  destruct (Nat.eqb_spec j (life img (sb_of a))) as [->|N]; simpl.
  - destruct (Nat.eqb_spec i (life img (sb_of a))) as [->|N]; split.
    + intros H; injection H as -> -> ->; eauto.
    + intros (i & H & -> & _); congruence.
    + discriminate.
    + intros (i' & H & -> & _); congruence.
  - split; [discriminate|]. intros (i' & _ & _ & H); congruence.
Qed.

Lemma in_of_page : forall img a w, In a (addrs D) -> In w (of_page D img a) -> Wit img w.
Proof.
  unfold of_page; intros img a w Ha H; destruct (data_at D img a) as [[[names n] c]|] eqn:E; [|easy].
  apply data_at_iff in E as (i & E & P); apply in_map_iff in H as (l & <- & H).
  econstructor 1; eauto.
Qed.

Lemma raw_wit : forall img w, In w (raw D img) <-> Wit img w.
Proof.
  intros; unfold raw; rewrite !in_app_iff, !in_flat_map; split.
  - intros [(a & Ha & H) | [(s & Hs & H) | (s & Hs & H)]]; try rewrite in_seq in Hs.
    + eapply in_of_page; eauto.
    + unfold of_entry, entry_at in H; rewrite !on in H; simpl in H.
      destruct (words img (EntA s)) eqn:EA; try easy; destruct (words img (EntB s)) eqn:EB; try easy.
      destruct (Nat.eqb_spec i (life img (sb_of a))); try easy.
      destruct (data_at D img a) as [[[names n'] c]|] eqn:E; try easy.
      destruct H as [<-|[]]; apply data_at_iff in E as (j & E & P).
      econstructor 2; eauto; lia.
    + unfold of_record in H.
      destruct (words img (DeaA s)) eqn:EA; try easy; destruct (words img (DeaB s)) eqn:EB; try easy.
      apply in_map_iff in H as (l & <- & H); econstructor 3; eauto; lia.
  - destruct 1.
    + left; exists a; split; auto; unfold of_page.
      rewrite (proj2 (data_at_iff img a names n c)) by eauto.
      apply in_map_iff; eauto.
    + right; left; exists s; rewrite in_seq; split; [lia|].
      unfold of_entry, entry_at; rewrite H0, H1, on; simpl.
      rewrite H2, Nat.eqb_refl, (proj2 (data_at_iff img a names n' c)) by eauto; simpl; auto.
    + right; right; exists s; rewrite in_seq; split; [lia|].
      unfold of_record; rewrite H0, H1; apply in_map_iff; eauto.
Qed.

Lemma mem_in : forall n l, mem n l = true <-> In n l.
Proof.
  unfold mem; intros; rewrite existsb_exists; split.
  - intros (x & H & E); apply Nat.eqb_eq in E; subst; auto.
  - intros H; exists n; split; auto using Nat.eqb_refl.
Qed.

Lemma in_num_of : forall n v, In n (num_of v) <-> v = Num n.
Proof. intros n []; simpl; split; try easy; intuition congruence. Qed.

Lemma hidden_iff : forall img n, In n (hidden D img) <-> Hid img n.
Proof.
  intros; unfold hidden, Hid; rewrite in_app_iff, !in_flat_map; split.
  - intros [(k & Hk & H) | (k & Hk & H)]; apply in_num_of in H; rewrite in_seq in Hk;
      exists k; split; auto; lia.
  - intros (k & Hk & [H | H]); [left | right]; exists k; rewrite in_seq, in_num_of; split; auto; lia.
Qed.

Lemma visible_iff : forall img w, In w (visible D img) <-> Wit img w /\ ~ Hid img (w_num w).
Proof.
  intros; unfold visible; rewrite filter_In, raw_wit, negb_true_iff, <- not_true_iff_false, mem_in, hidden_iff.
  tauto.
Qed.

Lemma newest_ge : forall img l n c, Wit img (W l n c) -> ~ Hid img n -> n <= newest D img l.
Proof.
  intros; unfold newest.
  assert (F : Forall (fun x => x <= list_max (map w_num (filter (fun w => w_lpn w =? l) (visible D img))))
            (map w_num (filter (fun w => w_lpn w =? l) (visible D img)))) by (apply list_max_le; auto).
  rewrite Forall_forall in F; apply F, in_map_iff; exists (W l n c); split; auto.
  apply filter_In; simpl; rewrite Nat.eqb_refl, visible_iff; auto.
Qed.

Lemma list_max_in : forall l, list_max l = 0 \/ In (list_max l) l.
Proof.
  induction l as [|x l [IH|IH]]; simpl; auto; fold (list_max l).
  - rewrite IH, Nat.max_0_r; auto.
  - destruct (Nat.max_spec x (list_max l)) as [[_ ->]|[_ ->]]; auto.
Qed.

Lemma newest_in : forall img l, newest D img l = 0 \/
  exists c, Wit img (W l (newest D img l) c) /\ ~ Hid img (newest D img l).
Proof.
  intros img l; unfold newest.
  destruct (list_max_in (map w_num (filter (fun w => w_lpn w =? l) (visible D img)))) as [H|H]; auto.
  right; apply in_map_iff in H as ([l' n c] & E & H); simpl in E; rewrite <- E.
  apply filter_In in H as [H El]; simpl in El; apply Nat.eqb_eq in El; subst l'.
  apply visible_iff in H as [H1 H2]; eauto.
Qed.

(** [newest] of an LPN does not fall if each of its witnesses is matched. *)
Lemma newest_mono : forall img img' l,
  (forall n c, Wit img (W l n c) -> ~ Hid img n -> exists n' c',
     n <= n' /\ Wit img' (W l n' c') /\ ~ Hid img' n') ->
  newest D img l <= newest D img' l.
Proof.
  intros img img' l H; destruct (newest_in img l) as [->|(c & Hw & Hh)]; [lia|].
  destruct (H _ _ Hw Hh) as (n' & c' & L & Hw' & Hh').
  pose proof (newest_ge _ _ _ _ Hw' Hh'); lia.
Qed.

Lemma read_spec : forall img l,
  (newest D img l = 0 /\ read D img l = 0) \/
  (Wit img (W l (newest D img l) (read D img l)) /\ ~ Hid img (newest D img l)).
Proof.
  intros img l; unfold read.
  destruct (find _ (visible D img)) as [[l' n c]|] eqn:E.
  - apply find_some in E as [H1 H2]; simpl in H2; apply andb_prop in H2 as [H2 H3].
    apply Nat.eqb_eq in H2, H3; subst l' n; apply visible_iff in H1; auto.
  - left; split; auto; destruct (newest_in img l) as [H|(c & H1 & H2)]; auto; exfalso.
    assert (F : In (W l (newest D img l) c) (visible D img)) by (apply visible_iff; auto).
    apply (find_none _ _ E) in F; simpl in F; rewrite !Nat.eqb_refl in F; discriminate.
Qed.

Lemma largest_wit : forall img l n c, Wit img (W l n c) -> n <= largest D img.
Proof.
  intros; unfold largest; rewrite on.
  assert (F : Forall (fun x => x <= list_max (map w_num (raw D img) ++ hidden D img))
                     (map w_num (raw D img) ++ hidden D img)) by (apply list_max_le; auto).
  rewrite Forall_forall in F; apply F, in_or_app; left; apply in_map_iff.
  exists (W l n c); rewrite raw_wit; auto.
Qed.

Lemma largest_hid : forall img n, Hid img n -> n <= largest D img.
Proof.
  intros; unfold largest; rewrite on.
  assert (F : Forall (fun x => x <= list_max (map w_num (raw D img) ++ hidden D img))
                     (map w_num (raw D img) ++ hidden D img)) by (apply list_max_le; auto).
  rewrite Forall_forall in F; apply F, in_or_app; right; apply hidden_iff; auto.
Qed.

(** The check before a witness is removed, for the LPNs that are listed. *)
Lemma keeps_spec : forall img img' ls l, keeps D img img' ls = true -> In l ls ->
  newest D img l <= newest D img' l.
Proof.
  unfold keeps; intros img img' ls l H Hl; rewrite forallb_forall in H.
  apply Nat.leb_le, H; auto.
Qed.

End Witnesses.
