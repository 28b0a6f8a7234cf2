(** * Steps of the world: completion, acknowledgement, power cut

    Idea. A completed operation only excludes cuts. An acknowledgement raises the
    floor to a number whose claim is durable, so has landed in every cut. A cut
    picks one of the images that the invariant is about; recovery starts from it
    with nothing pending, and what it shows becomes the floor. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds StepsAdd.

Section StepsWorld.
Variable D : device.
Hypothesis on : forall g, has D g = true.

(** ** Completion *)

Lemma mark_durable_split : forall p i q, nth_error p i = Some q ->
  exists l1 l2, p = l1 ++ q :: l2 /\ length l1 = i /\
    mark_durable p i = l1 ++ Pending (op q) (waits q) true :: l2.
Proof.
  intros p i q H; destruct (nth_error_split _ _ H) as (l1 & l2 & -> & <-).
  exists l1, l2; repeat split; auto; unfold mark_durable.
  assert (E1 : firstn (length l1) (l1 ++ q :: l2) = l1).
  { rewrite firstn_app, Nat.sub_diag, firstn_all; simpl; apply app_nil_r. }
  assert (E2 : skipn (S (length l1)) (l1 ++ q :: l2) = l2).
  { clear; induction l1; auto. }
  rewrite H, E1, E2; auto.
Qed.

Lemma fewer_ends : forall O l1 q l2 os,
  forallb (may_end O) (combine (l1 ++ Pending (op q) (waits q) true :: l2) os) = true ->
  forallb (may_end O) (combine (l1 ++ q :: l2) os) = true.
Proof.
  intros O l1 q l2; induction l1 as [|x l1 IH]; intros [|o os] H; simpl in *; auto.
  - apply andb_prop in H as [H1 H2]; rewrite H2, andb_true_r; destruct o; simpl in *; auto; discriminate.
  - apply andb_prop in H as [H1 H2]; rewrite H1; simpl; auto.
Qed.

Lemma fewer_cuts : forall l1 q l2 outs,
  may_cut (l1 ++ Pending (op q) (waits q) true :: l2) outs = true ->
  may_cut (l1 ++ q :: l2) outs = true.
Proof.
  unfold may_cut; intros l1 q l2 outs H; apply andb_prop in H as [H1 H2].
  rewrite app_length in *; simpl in *; rewrite H1; simpl; apply fewer_ends; auto.
Qed.

Lemma same_view : forall l1 q l2 outs b,
  view b (l1 ++ Pending (op q) (waits q) true :: l2) outs = view b (l1 ++ q :: l2) outs.
Proof.
  unfold view; induction l1 as [|x l1 IH]; intros q l2 [|o outs] b; simpl; auto.
Qed.

Lemma step_complete : forall st i extra st', Inv D st ->
  step D st (Complete i) extra = Some st' -> Inv D st'.
Proof.
  intros st i extra st' I H; simpl in H.
  destruct (nth_error (pend st) i) as [q|] eqn:Hq; [|discriminate].
  apply check_spec in H as [_ H]; injection H as <-.
  destruct (mark_durable_split _ _ _ Hq) as (l1 & l2 & Ep & El & Em).
  assert (Hlen : length (mark_durable (pend st) i) = length (pend st)).
  { rewrite Em, Ep, !app_length; auto. }
  assert (Hdur : forall needs, all_durable (pend st) needs = true ->
            all_durable (mark_durable (pend st) i) needs = true).
  { unfold all_durable; intros needs Hn; rewrite forallb_forall in *; intros j Hj; specialize (Hn j Hj).
    rewrite Em; rewrite Ep in Hn; destruct (Nat.lt_ge_cases j (length l1)).
    - rewrite nth_error_app1 in * by auto; auto.
    - rewrite nth_error_app2 in * by auto; destruct (j - length l1); auto. }
  split; simpl; try apply I.
  - intros j x Hx k Hk; rewrite Em in Hx.
    destruct (Nat.lt_ge_cases j (length l1)).
    + apply (i_wf _ _ I j x); auto; rewrite Ep, nth_error_app1 in * by auto; auto.
    + destruct (j - length l1) as [|d] eqn:Ed.
      * rewrite nth_error_app2, Ed in Hx by auto; injection Hx as <-; simpl in Hk.
        apply (i_wf _ _ I j q); auto; rewrite Ep, nth_error_app2, Ed; auto.
      * apply (i_wf _ _ I j x); auto; rewrite Ep, nth_error_app2, Ed in * by auto; auto.
  - intros outs Hc; rewrite Em in *; apply fewer_cuts in Hc; rewrite <- Ep in Hc.
    rewrite same_view, <- Ep; destruct (i_cuts _ _ I _ Hc); split; auto.
  - intros cl Hcl; rewrite Hlen; apply (i_claims _ _ I); auto.
  - intros d Hd; rewrite Hlen; apply (i_drafts _ _ I); auto.
  - intros n k R; destruct (i_running _ _ I _ _ R) as (H1 & H2 & H3); repeat split; auto.
    rewrite <- H2; unfold image_now, now; simpl; rewrite Em, same_view, <- Ep.
    unfold all_whole; rewrite Ep, !map_app; auto.
  - intros l; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; auto.
Qed.

(** ** Acknowledgement *)

Lemma inv_floor : forall st f, Inv D st ->
  (forall l, f l = 0 \/ exists cl, In cl (claims st) /\ c_lpn cl = l /\ c_num cl = f l /\
     all_durable (pend st) (c_needs cl) = true) ->
  Inv D (State (base st) (pend st) (clock st) (running st) (opened st) (gone st) (claims st) (drafts st) f).
Proof.
  intros st f I Hf; split; simpl; try apply I; auto.
  intros outs Hc; destruct (i_cuts _ _ I _ Hc); split; auto.
Qed.

Lemma step_acknowledge : forall st n extra st', Inv D st ->
  step D st (Acknowledge n) extra = Some st' -> Inv D st'.
Proof.
  intros st n extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  rewrite forallb_forall in Hf; apply inv_floor; auto; intros l.
  destruct (mem l _) eqn:M; [|apply I].
  apply mem_in, in_map_iff in M as (cl & El & Hcl); pose proof (Hf _ Hcl) as Hd.
  apply filter_In in Hcl as [Hcl En]; apply Nat.eqb_eq in En.
  destruct (Nat.max_spec (floor st l) n) as [[_ ->] | [_ ->]]; [|apply I].
  right; exists cl; auto.
Qed.

Lemma step_no_effect : forall st l c extra st', Inv D st ->
  step D st (NoEffect l c) extra = Some st' -> Inv D st'.
Proof.
  intros st l c extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  apply andb_prop in Hf as [_ Hf]; apply inv_floor; auto; intros x.
  destruct (Nat.eqb_spec x l) as [-> | N]; [|apply I].
  destruct (Nat.max_spec (floor st l) (newest D (image_now st) l)) as [[_ ->] | [_ ->]]; [|apply I].
  apply orb_prop in Hf as [Hf | Hf]; [left; apply Nat.eqb_eq; auto|].
  apply existsb_exists in Hf as (cl & Hcl & E); rewrite on in E; simpl in E.
  rewrite !andb_true_iff, !Nat.eqb_eq in E; right; exists cl; tauto.
Qed.

(** ** Power cut and recovery *)

Lemma newest_largest : forall img l, newest D img l <= largest D img.
Proof.
  intros img l; destruct (newest_in D on img l) as [-> | (c & H & _)]; [lia|].
  eapply largest_wit; eauto.
Qed.

Lemma step_power_cut : forall st outs extra st', Inv D st ->
  step D st (PowerCut outs) extra = Some st' -> Inv D st'.
Proof.
  intros st outs extra st' I H; simpl in H; apply check_spec in H as [Hc H]; injection H as <-.
  pose proof (i_cuts _ _ I _ Hc) as G; set (img := view (base st) (pend st) outs) in *.
  match goal with |- Inv D (State _ _ _ _ _ _ ?x _ _) => set (cs := x) end.
  assert (Hcs : forall cl, In cl cs <-> exists cl0, In cl0 (claims st) /\
            c_num cl0 <= newest D img (c_lpn cl0) /\ ~ Hid D img (c_num cl0) /\
            cl = Claim (c_lpn cl0) (c_num cl0) (c_content cl0) [] (c_multi cl0) None).
  { intros cl; unfold cs; rewrite in_flat_map; split.
    - intros (cl0 & H0 & H); exists cl0.
      destruct ((c_num cl0 <=? newest D img (c_lpn cl0)) && negb (mem (c_num cl0) (hidden D img))) eqn:E; [|easy].
      destruct H as [<- | []]; apply andb_prop in E as [E1 E2]; apply Nat.leb_le in E1.
      apply negb_true_iff, not_true_iff_false in E2; rewrite mem_in, hidden_iff in E2; auto.
    - intros (cl0 & H0 & H1 & H2 & ->); exists cl0; split; auto.
      apply Nat.leb_le in H1; rewrite H1.
      assert (E : mem (c_num cl0) (hidden D img) = false).
      { apply not_true_iff_false; rewrite mem_in, hidden_iff; auto. }
      rewrite E; simpl; auto. }
  assert (Shown : forall l n c, Wit D img (W l n c) -> ~ Hid D img n ->
            exists cl, In cl cs /\ c_lpn cl = l /\ c_num cl = n /\ c_content cl = c /\ c_needs cl = []).
  { intros l n c Hw Hn; destruct (g_truth _ _ _ _ G _ _ _ Hw Hn) as (cl & Hcl & <- & <- & <-).
    eexists; split; [apply Hcs; exists cl; repeat split; eauto|simpl; auto].
    eapply newest_ge; eauto. }
  split; simpl; try tauto.
  - apply wf_nil.
  - intros [|o outs'] H; [|exfalso; unfold may_cut in H; simpl in H; discriminate H].
    unfold view; simpl; split; simpl; try tauto; try easy.
    + apply G.
    + intros l n c Hw Hn; destruct (Shown _ _ _ Hw Hn) as (cl & H1 & H2 & H3 & H4 & _); eauto.
    + intros l n c Hw Hn cl Hcl <-; apply Hcs in Hcl as (cl0 & _ & H1 & _ & ->); auto.
    + intros l n c Hw Hn cl Hcl _ _; apply Hcs in Hcl as (cl0 & _ & _ & _ & ->); intros j [].
    + intros cl Hcl _; apply Hcs in Hcl as (cl0 & _ & H1 & _ & ->); auto.
    + intros k n Hk E; left; apply hidden_iff; exists k; auto.
    + intros k n Hk E; apply hidden_iff; exists k; auto.
    + intros l n c Hw; eapply largest_wit; eauto.
  - intros cl Hcl; apply Hcs in Hcl as (cl0 & _ & H1 & H2 & ->); simpl; repeat split; auto; try easy.
    + apply Nat.le_trans with (newest D img (c_lpn cl0)); auto using newest_largest.
    + rewrite hidden_iff; auto.
  - intros n H; apply hidden_iff in H; apply largest_hid; auto.
  - intros l; destruct (newest_in D on img l) as [E | (c & Hw & Hn)]; auto.
    destruct (Shown _ _ _ Hw Hn) as (cl & H1 & H2 & H3 & H4 & H5).
    right; exists cl; repeat split; auto; rewrite H5; auto.
  - intros cl cl' Hcl Hcl' E; apply Hcs in Hcl as (a & Ha & _ & _ & ->).
    apply Hcs in Hcl' as (b & Hb & _ & _ & ->); simpl in *.
    apply (i_multi _ _ I a b); auto.
Qed.

End StepsWorld.
