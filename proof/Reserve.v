(** * The reserve is free after any cut

    Idea. Collection needs superblocks that are free. A cut may undo deaths, so that
    superblocks which were free count again, while those opened since have their
    heads. So the head of a superblock waits until as many others as the reserve
    has are durably free. Among the heads that a cut leaves, take the one issued
    last: those that it waited for are free, since none of them was opened before
    it, and no head issued later is there.

    Absent: how much collection needs; that it gains room; room for entries. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds
  StepsAdd StepsKill StepsNumber StepsWorld Theorems.

Section Reserve.
Variable D : device.
Hypothesis on : sound_device D.

(** As many superblocks as the reserve has are without a head of the present incarnation. *)
Definition reserve_free (img : image) : Prop := exists free, reserve D <= length free /\ NoDup free /\
  forall sb, In sb free -> sb < superblocks D /\ head_ok D img sb = false.

Lemma head_not_ok : forall img sb, head_ok D img sb = false <->
  cells img (head_at sb) <> Page (Head (life img sb)).
Proof.
  intros img sb; unfold head_ok, present; rewrite on; simpl.
  destruct (cells img (head_at sb)) as [| |[i|]]; split; try congruence; auto; try discriminate.
  - intros H E; injection E as ->; rewrite Nat.eqb_refl in H; discriminate.
  - intros H; apply Nat.eqb_neq; congruence.
Qed.

Lemma distinct_nodup : forall l, distinct l = true -> NoDup l.
Proof.
  induction l as [|n l IH]; simpl; intros H; constructor; apply andb_prop in H as [H1 H2]; auto.
  apply negb_true_iff, not_true_iff_false in H1; rewrite mem_in in H1; auto.
Qed.

(** Only a head can take a superblock from the free ones. *)
Definition plain (o : mop) : bool :=
  match o with Program _ (Head _) => false | Store (Life _) _ => false | _ => true end.

Lemma plain_free : forall img o r sb, plain o = true ->
  head_ok D img sb = false -> head_ok D (land img o r) sb = false.
Proof.
  intros img o r sb Ho; rewrite !head_not_ok; intros H E; apply H; clear H.
  destruct o as [a p | sb' b | l v]; destruct r; simpl in *; auto; unfold life in *; simpl in *.
  - destruct p; [discriminate|]; destruct (cells img a); simpl in *;
      destruct (addr_dec (head_at sb) a); congruence.
  - destruct (addr_dec (head_at sb) a); congruence.
  - destruct (in_block sb' b (head_at sb)); congruence.
  - destruct (in_block sb' b (head_at sb)); congruence.
  - destruct (loc_dec (Life sb) l) as [<- | N]; [discriminate | auto].
Qed.

(** A death frees one more. *)
Lemma death_free : forall img sb' d sb, Sound D img -> life img sb' <= d ->
  head_ok D img sb = false -> head_ok D (set_word (Life sb') (Num d) img) sb = false.
Proof.
  intros img sb' d sb S Hd; rewrite !head_not_ok; intros H E; apply H; clear H.
  unfold life in E; simpl in E; destruct (loc_dec (Life sb) (Life sb')) as [Es | N]; [|exact E].
  injection Es as <-; pose proof (s_pages _ _ S _ _ E) as L; simpl in L.
  rewrite E; do 2 f_equal; lia.
Qed.

Lemma keep_free : forall img img', (forall sb, head_ok D img sb = false -> head_ok D img' sb = false) ->
  reserve_free img -> reserve_free img'.
Proof.
  intros img img' H (free & H1 & H2 & H3); exists free; repeat split; auto; [apply H3; auto|].
  apply H, H3; auto.
Qed.

Definition reserved (b : image) (p : list pending) : Prop := forall outs, may_cut p outs = true ->
  reserve_free (view b p outs).

Lemma reserved_plain : forall b p o ws, wf p -> reserved b p -> plain o = true -> reserved b (issue o ws p).
Proof.
  intros b p o ws Hwf H Ho outs' Hc.
  destruct (cut_issue b _ _ _ _ Hwf Hc) as (outs & r & -> & _ & Hc' & -> & _).
  eapply keep_free; [|apply H; eauto]; intros; apply plain_free; auto.
Qed.

Lemma reserved_clear : forall b waits ws p, wf p -> reserved b p -> forallb is_record ws = true ->
  reserved b (clear ws waits p).
Proof.
  intros b waits; induction ws as [|w ws IH]; simpl; intros p Hwf H R; auto.
  apply andb_prop in R as [R1 R2]; apply IH; auto using wf_issue.
  apply reserved_plain; auto; destruct w; auto; discriminate.
Qed.

(** The head: those kept for the reserve are free in each cut that has it. *)
Lemma reserved_open : forall st sb kept ws, Inv D st -> reserved (base st) (pend st) ->
  stay_free D (image_now st) sb kept = true ->
  (forall j, In j (flat_map (free_waits (pend st)) kept) -> In j ws) ->
  reserved (base st) (issue (Program (head_at sb) (Head (life (image_now st) sb))) ws (pend st)).
Proof.
  intros st sb kept ws I H Hk Hw outs' Hc.
  destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hwi & -> & Hws & _).
  unfold stay_free in Hk; rewrite !andb_true_iff, Nat.leb_le, forallb_forall in Hk.
  destruct Hk as [[[H1 H2] H3] H4].
  set (img := old_image st outs) in *.
  assert (F : r <> Absent -> forall s, In s kept -> s < superblocks D /\ s <> sb /\
            cells img (head_at s) <> Page (Head (life img s))).
  { intros Nr s Hs; specialize (H4 _ Hs); apply andb_prop in H4 as [H4 H5]; apply Nat.ltb_lt in H4.
    apply negb_true_iff in H5; rewrite head_not_ok in H5.
    assert (L : forall j, In j (free_waits (pend st) s) -> landed outs j).
    { intros j Hj; apply Hws; auto; [apply Hw, in_flat_map; eauto|].
      unfold free_waits in Hj; apply in_app_or in Hj as [Hj | Hj]; eapply touching_lt; eauto. }
    unfold free_waits in L; split; auto; split.
    - intros ->; apply negb_true_iff, not_true_iff_false in H3; rewrite mem_in in H3; auto.
    - unfold img; rewrite cell_in_cut, life_in_cut; eauto using within_self;
        intros j Hj; apply L, in_or_app; auto. }
  assert (Ok : r <> Absent -> forall s, In s kept ->
            head_ok D (land img (Program (head_at sb) (Head (life (image_now st) sb))) r) s = false).
  { intros Nr s Hs; destruct (F Nr s Hs) as (_ & N & Hh); rewrite head_not_ok; intros E; apply Hh.
    assert (Nh : head_at s <> head_at sb) by (intros E'; injection E'; auto).
    destruct r; [| congruence |]; unfold life in *; simpl in *.
    - destruct (cells img (head_at sb)); simpl in E; destruct (addr_dec (head_at s) (head_at sb)); congruence.
    - destruct (addr_dec (head_at s) (head_at sb)); congruence. }
  destruct r; [| apply H, Hwi |]; exists kept; (split; [auto | split; [apply distinct_nodup; auto|]]);
    intros s Hs; (split; [apply F; auto; discriminate | apply Ok; auto; discriminate]).
Qed.

Lemma reserved_dead : forall st sb ws, Inv D st -> reserved (base st) (pend st) ->
  reserved (base st) (issue (Store (Life sb) (Num (S (life (image_now st) sb)))) ws (pend st)).
Proof.
  intros st sb ws I H outs' Hc.
  destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hwi & -> & _ & Hcf & T).
  destruct r; [| apply H, Hwi | specialize (T eq_refl); discriminate].
  eapply keep_free; [|apply H, Hwi]; intros s Hs; apply death_free; auto.
  - apply (i_cuts _ _ I), Hwi.
  - assert (E : words (old_image st outs) (Life sb) = words (image_now st) (Life sb)).
    { eapply own_word; eauto using within_self; apply Hcf; discriminate. }
    fold (old_image st outs); unfold life; rewrite E; auto.
Qed.

Lemma reserved_step : forall st act extra st', Inv D st -> reserved (base st) (pend st) ->
  step D st act extra = Some st' -> reserved (base st') (pend st').
Proof.
  intros st act extra st' I U H; pose proof (i_wf _ _ I) as Hwf.
  destruct act; simpl in H;
    repeat match goal with
    | H : check _ _ = Some _ |- _ => apply check_spec in H as [? H]
    | H : context [match number D st ?m ?ls with _ => _ end] |- _ => destruct (number D st m ls) as [[? ?]|] eqn:Hn; [|discriminate]
    | H : context [match data_at D ?i ?a with _ => _ end] |- _ => destruct (data_at D i a) as [[[? ?] ?]|]; [|discriminate]
    | H : context [match word_of st ?n with _ => _ end] |- _ => destruct (word_of st n) eqn:Hw; [|discriminate]
    | H : context [match zero_guard ?w with _ => _ end] |- _ => destruct (zero_guard w) eqn:Hz; [|discriminate]
    | H : context [match nth_error ?p ?i with _ => _ end] |- _ => destruct (nth_error p i) eqn:Hq; [|discriminate]
    | H : context [match words ?i ?w with _ => _ end] |- _ => destruct (words i w); try discriminate
    | H : context [if has D ?g then _ else _] |- _ => rewrite (on g) in H
    end; injection H as <-; try (destruct m); simpl; auto;
    try (apply reserved_plain; auto; apply reserved_plain; auto; fail);
    try (apply reserved_plain; auto using wf_issue; fail);
    try (apply reserved_plain; auto using wf_issue; apply reserved_plain; auto; fail).
  - apply andb_prop in H0 as [_ H0]; eapply reserved_open; eauto.
    intros j Hj; unfold if_on; rewrite on, !in_app_iff; auto.
  - apply reserved_dead; auto.
  - apply reserved_clear; auto; apply andb_prop in H0 as [H0 _]; apply andb_prop in H0 as [H0 _]; auto.
  - intros outs Hc; destruct (mark_durable_split _ _ _ Hq) as (l1 & l2 & Ep & _ & Em).
    rewrite Em in *; apply fewer_cuts in Hc; rewrite same_view; rewrite <- Ep in *; auto.
  - intros [|o outs'] Hc; [|exfalso; unfold may_cut in Hc; simpl in Hc; discriminate Hc].
    unfold view at 1; simpl; auto.
Qed.

Lemma reserved_run : forall acts st st', Inv D st -> reserved (base st) (pend st) ->
  run D st acts = Some st' -> reserved (base st') (pend st').
Proof.
  induction acts as [|[a e] acts IH]; simpl; intros st st' I U H.
  - injection H as <-; auto.
  - destruct (step D st a e) as [st1|] eqn:E; [|discriminate].
    eapply IH; [eapply step_inv; eauto | eapply reserved_step; eauto | auto].
Qed.

End Reserve.

Theorem the_reserve_is_free_after_any_cut : forall D st outs, sound_device D -> reachable D st ->
  reserve D <= superblocks D -> may_cut (pend st) outs = true ->
  exists free, reserve D <= length free /\ NoDup free /\
    forall sb, In sb free -> sb < superblocks D /\ head_ok D (after_cut st outs) sb = false.
Proof.
  intros D st outs on (acts & R) Hr; revert outs.
  apply (reserved_run D on acts init st); auto; [apply inv_init|].
  intros [|o outs] Hc; [|exfalso; unfold may_cut in Hc; simpl in Hc; discriminate Hc].
  exists (seq 0 (superblocks D)); rewrite seq_length; repeat split; auto using seq_NoDup.
  apply in_seq in H; lia.
Qed.
