(** * The invariant: every cut of the pending operations recovers rightly

    Idea. [Good st outs img] says that one cut, with these outcomes and so with
    this image, shows what it may show. [Inv] says it of all cuts that the order
    of the pending operations allows. Two clauses carry the theorems:

    - [g_dom]: a claim whose operations have all landed is matched by a witness
      that counts and is at least as new. So what was acknowledged is never lost.
    - [g_truth]: each witness that counts was claimed, with this number and
      content. So nothing is shown that was not submitted.

    [g_whole] is the same for commands of several pages: if one witness of a
    number counts, every claim with this number is matched.

    Absent here: how the steps preserve it (Adds.v, Kills.v, Numbers.v). *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images.

Section Invariant.
Variable D : device.
Hypothesis on : forall g, has D g = true.

Definition all_landed_in (outs : list outcome) (needs : list nat) : Prop :=
  forall j, In j needs -> landed outs j.

Record Good (st : state) (outs : list outcome) (img : image) : Prop := {
  g_sound : Sound D img;
  g_truth : forall l n c, Wit D img (W l n c) -> ~ Hid D img n ->
    exists cl, In cl (claims st) /\ c_lpn cl = l /\ c_num cl = n /\ c_content cl = c;
  g_whole : forall l n c, Wit D img (W l n c) -> ~ Hid D img n ->
    forall cl, In cl (claims st) -> c_num cl = n -> n <= newest D img (c_lpn cl);
  g_landed : forall l n c, Wit D img (W l n c) -> ~ Hid D img n ->
    forall cl, In cl (claims st) -> c_num cl = n -> c_multi cl = true ->
    all_landed_in outs (c_needs cl);
  g_dom : forall cl, In cl (claims st) -> all_landed_in outs (c_needs cl) ->
    c_num cl <= newest D img (c_lpn cl);
  g_draft : forall d, In d (drafts st) -> all_landed_in outs (c_needs d) ->
    exists c, Wit D img (W (c_lpn d) (c_num d) c);
  g_draft_truth : forall l n c k, Wit D img (W l n c) -> In (n, k) (running st) ->
    exists d, In d (drafts st) /\ c_lpn d = l /\ c_num d = n /\ c_content d = c;
  g_open : forall k n, k < open_words D -> words img (OpenW k) = Num n -> In n (gone st) \/ In (n, k) (opened st);
  g_abort : forall k n, k < open_words D -> words img (AbortW k) = Num n -> In n (gone st);
  g_num : forall l n c, Wit D img (W l n c) -> n <= clock st
}.

Record Inv (st : state) : Prop := {
  i_wf : wf (pend st);
  i_cuts : forall outs, may_cut (pend st) outs = true ->
    Good st outs (view (base st) (pend st) outs);
  i_claims : forall cl, In cl (claims st) ->
    c_num cl <= clock st /\ ~ In (c_num cl) (gone st) /\
    (forall k, ~ In (c_num cl, k) (running st)) /\
    (forall j, In j (c_needs cl) -> j < length (pend st));
  i_drafts : forall d, In d (drafts st) ->
    (exists k, In (c_num d, k) (running st)) /\
    (forall j, In j (c_needs d) -> j < length (pend st));
  i_running : forall n k, In (n, k) (running st) ->
    In (n, k) (opened st) /\ words (image_now st) (OpenW k) = Num n /\ k < open_words D;
  i_opened : forall n k, In (n, k) (opened st) -> n <= clock st /\ ~ In n (gone st) /\
    forall k', In (n, k') (opened st) -> k' = k;
  i_gone : forall n, In n (gone st) -> n <= clock st;
  i_floor : forall l, floor st l = 0 \/ exists cl, In cl (claims st) /\ c_lpn cl = l /\
    c_num cl = floor st l /\ all_durable (pend st) (c_needs cl) = true;
  i_multi : forall cl cl', In cl (claims st) -> In cl' (claims st) -> c_num cl' = c_num cl ->
    c_multi cl' = c_multi cl /\ (c_multi cl = false -> c_lpn cl' = c_lpn cl)
}.

Lemma good_now : forall st, Inv st -> Good st (all_whole (pend st)) (image_now st).
Proof. intros st I; apply i_cuts; auto; apply may_cut_now, i_wf; auto. Qed.

Lemma inv_init : Inv init.
Proof.
  assert (N : forall w, ~ Wit D blank w) by (intros w H; destruct H; discriminate).
  split; simpl; auto using wf_nil; try (intros; exfalso; tauto).
  intros [|o outs] H; [|exfalso; unfold may_cut in H; simpl in H; discriminate H].
  split; simpl; try discriminate; try (intros; exfalso; tauto);
    try (intros; exfalso; eapply N; eauto; fail).
  apply sound_blank.
Qed.

(** Drafts belong to running commands. *)
Lemma no_drafts : forall st, Inv st -> running st = [] -> drafts st = [].
Proof.
  intros st I R; destruct (drafts st) as [|d ds] eqn:E; auto; exfalso.
  destruct (i_drafts _ I d) as [(k & H) _]; [rewrite E; simpl; auto|].
  rewrite R in H; easy.
Qed.

(** What is durable has landed in every cut. *)
Lemma durable_landed : forall p outs needs, may_cut p outs = true ->
  all_durable p needs = true -> all_landed_in outs needs.
Proof.
  intros p outs needs H Hd j Hj; unfold all_durable in Hd; rewrite forallb_forall in Hd.
  specialize (Hd _ Hj); destruct (nth_error p j) as [q|] eqn:E; [|discriminate].
  pose proof (may_cut_length _ _ H) as L.
  destruct (nth_error outs j) as [o|] eqn:Eo.
  - unfold may_cut in H; apply andb_prop in H as [_ H]; rewrite forallb_forall in H.
    specialize (H _ (nth_in_combine _ _ _ _ _ _ _ E Eo)); unfold landed.
    destruct o; auto; simpl in H; rewrite Hd in H; discriminate.
  - apply nth_error_None in Eo; assert (j < length p) by (apply nth_error_Some; congruence); lia.
Qed.

(** A new operation is not durable, and changes no older one's state. *)
Lemma all_durable_issue : forall o ws p needs,
  all_durable p needs = true -> all_durable (issue o ws p) needs = true.
Proof.
  unfold all_durable; intros o ws p needs H; rewrite forallb_forall in *; intros j Hj.
  specialize (H _ Hj); unfold issue; destruct (nth_error p j) eqn:E; [|discriminate].
  rewrite nth_error_app1; [rewrite E; auto | apply nth_error_Some; congruence].
Qed.

(** ** Two ways from one image to the next *)

(** New witnesses, and none removed; or nothing at all, with [New] empty. *)
Lemma good_add : forall st st' outs outs' img img' cs ds (New : witness -> Prop),
  Good st outs img ->
  (forall j, j < length (pend st) -> (landed outs' j <-> landed outs j)) ->
  (forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st)) ->
  (forall d, In d (drafts st) -> forall j, In j (c_needs d) -> j < length (pend st)) ->
  claims st' = claims st ++ cs -> drafts st' = drafts st ++ ds ->
  running st' = running st -> opened st' = opened st -> gone st' = gone st ->
  clock st <= clock st' ->
  Sound D img' -> same_hiding img img' ->
  (forall w, Wit D img' w <-> Wit D img w \/ New w) ->
  (forall cl, In cl cs -> clock st < c_num cl) ->
  (forall cl, In cl cs -> all_landed_in outs' (c_needs cl) ->
     New (W (c_lpn cl) (c_num cl) (c_content cl)) /\ ~ Hid D img (c_num cl)) ->
  (forall d, In d ds -> all_landed_in outs' (c_needs d) ->
     New (W (c_lpn d) (c_num d) (c_content d))) ->
  (forall l n c, New (W l n c) -> n <= clock st' /\
     (~ Hid D img n ->
        (exists cl, In cl (claims st') /\ c_lpn cl = l /\ c_num cl = n /\ c_content cl = c) /\
        (forall cl, In cl (claims st') -> c_num cl = n ->
           New (W (c_lpn cl) n c) \/ n <= newest D img (c_lpn cl)) /\
        (forall cl, In cl (claims st') -> c_num cl = n -> c_multi cl = true ->
           all_landed_in outs' (c_needs cl))) /\
     (forall k, In (n, k) (running st) ->
        exists d, In d (drafts st') /\ c_lpn d = l /\ c_num d = n /\ c_content d = c)) ->
  Good st' outs' img'.
Proof.
  intros st st' outs outs' img img' cs ds New G Hl Hc Hd Ec Ed Er Eo Eg Et S Hh HW Hf Hcs Hds HN.
  assert (HH : forall n, Hid D img' n <-> Hid D img n) by (intros; apply same_hid; auto).
  assert (Up : forall l, newest D img l <= newest D img' l).
  { intros l; apply (newest_mono D on); intros n c Hw Hn; exists n, c; rewrite HW, HH; auto. }
  assert (NewUp : forall l n c, New (W l n c) -> ~ Hid D img n -> n <= newest D img' l).
  { intros l n c Hw Hn; eapply (newest_ge D on); [rewrite HW; eauto | rewrite HH; auto]. }
  assert (Lo : forall needs, (forall j, In j needs -> j < length (pend st)) ->
            all_landed_in outs' needs -> all_landed_in outs needs).
  { intros needs Hn H j Hj; apply Hl; auto. }
  split; auto.
  - intros l n c Hw Hn; rewrite HH in Hn; apply HW in Hw as [Hw | Hw].
    + destruct (g_truth _ _ _ G _ _ _ Hw Hn) as (cl & Hcl & H); exists cl; rewrite Ec, in_app_iff; auto.
    + apply HN in Hw as (_ & H & _); apply H; auto.
  - intros l n c Hw Hn cl Hcl En; rewrite HH in Hn; apply HW in Hw as [Hw | Hw].
    + rewrite Ec, in_app_iff in Hcl; destruct Hcl as [Hcl | Hcl].
      * apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
        eapply (g_whole _ _ _ G); eauto.
      * apply Hf in Hcl; pose proof (g_num _ _ _ G _ _ _ Hw); lia.
    + apply HN in Hw as (_ & H & _); destruct (H Hn) as (_ & H' & _).
      destruct (H' cl Hcl En) as [H'' | H'']; eauto.
      apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
  - intros l n c Hw Hn cl Hcl En Em; rewrite HH in Hn; apply HW in Hw as [Hw | Hw].
    + rewrite Ec, in_app_iff in Hcl; destruct Hcl as [Hcl | Hcl].
      * intros j Hj; apply Hl; [eauto|]; eapply (g_landed _ _ _ G); eauto.
      * apply Hf in Hcl; pose proof (g_num _ _ _ G _ _ _ Hw); lia.
    + apply HN in Hw as (_ & H & _); destruct (H Hn) as (_ & _ & H'); auto.
  - intros cl Hcl Hn; rewrite Ec, in_app_iff in Hcl; destruct Hcl as [Hcl | Hcl].
    + apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
      apply (g_dom _ _ _ G); auto; apply Lo; eauto.
    + destruct (Hcs cl Hcl Hn); eauto.
  - intros d Hdd Hn; rewrite Ed, in_app_iff in Hdd; destruct Hdd as [Hdd | Hdd].
    + destruct (g_draft _ _ _ G d Hdd) as (c & Hw); [apply Lo; eauto|].
      exists c; apply HW; auto.
    + exists (c_content d); apply HW; auto.
  - intros l n c k Hw Hr; rewrite Er in Hr; apply HW in Hw as [Hw | Hw].
    + destruct (g_draft_truth _ _ _ G _ _ _ _ Hw Hr) as (d & Hdd & H).
      exists d; rewrite Ed, in_app_iff; auto.
    + apply HN in Hw as (_ & _ & H); eauto.
  - intros k n Hk H; rewrite Hh in H by auto; rewrite Eg, Eo; eapply (g_open _ _ _ G); eauto.
  - intros k n Hk H; rewrite Hh in H by auto; rewrite Eg; eapply (g_abort _ _ _ G); eauto.
  - intros l n c Hw; apply HW in Hw as [Hw | Hw].
    + apply (g_num _ _ _ G) in Hw; lia.
    + apply HN in Hw; tauto.
Qed.

(** Witnesses removed, but no LPN's newest; no command is in progress. *)
Lemma good_kill : forall st st' outs outs' img img',
  Good st outs img ->
  (forall j, j < length (pend st) -> (landed outs' j <-> landed outs j)) ->
  (forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st)) ->
  claims st' = claims st -> drafts st' = [] ->
  running st' = [] -> opened st' = opened st -> gone st' = gone st -> clock st' = clock st ->
  Sound D img' -> same_hiding img img' ->
  (forall w, Wit D img' w -> Wit D img w) ->
  (forall l, newest D img l <= newest D img' l) ->
  Good st' outs' img'.
Proof.
  intros st st' outs outs' img img' G Hl Hc Ec Ed Er Eo Eg Et S Hh HW Up.
  assert (HH : forall n, Hid D img' n <-> Hid D img n) by (intros; apply same_hid; auto).
  split; auto.
  - intros l n c Hw Hn; rewrite HH in Hn; rewrite Ec; eapply (g_truth _ _ _ G); eauto.
  - intros l n c Hw Hn cl Hcl En; rewrite HH in Hn; rewrite Ec in Hcl.
    apply Nat.le_trans with (newest D img (c_lpn cl)); auto; eapply (g_whole _ _ _ G); eauto.
  - intros l n c Hw Hn cl Hcl En Em j Hj; rewrite HH in Hn; rewrite Ec in Hcl.
    apply Hl; [eauto|]; eapply (g_landed _ _ _ G); eauto.
  - intros cl Hcl Hn; rewrite Ec in Hcl; apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
    apply (g_dom _ _ _ G); auto; intros j Hj; apply Hl; eauto.
  - rewrite Ed; easy.
  - rewrite Er; easy.
  - intros k n Hk H; rewrite Hh in H by auto; rewrite Eg, Eo; eapply (g_open _ _ _ G); eauto.
  - intros k n Hk H; rewrite Hh in H by auto; rewrite Eg; eapply (g_abort _ _ _ G); eauto.
  - intros l n c Hw; rewrite Et; eapply (g_num _ _ _ G); eauto.
Qed.

End Invariant.
