(** * The theorems

    Idea. The invariant holds at first and is preserved by each step, so it holds
    after any steps, with any power cuts and recoveries among them. The theorems
    read off what it says of a cut at that moment, and of the tables while power
    is on (the cut that loses nothing).

    Each is about a device with all guards on ([sound_device]), of any size. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds
  StepsAdd StepsKill StepsNumber StepsWorld.

Definition sound_device (D : device) : Prop := forall g, has D g = true.

(** The states that the firmware can reach from a new device. *)
Definition reachable (D : device) (st : state) : Prop :=
  exists acts, run D init acts = Some st.

(** What a cut leaves for recovery, if the operations end like this. *)
Definition after_cut (st : state) (outs : list outcome) : image :=
  view (base st) (pend st) outs.

Section Steps.
Variable D : device.
Hypothesis on : sound_device D.

Lemma step_inv : forall st act extra st', Inv D st -> step D st act extra = Some st' -> Inv D st'.
Proof.
  intros st act extra st' I H; destruct act.
  - eapply step_open_superblock; eauto.
  - eapply step_mark_dead; eauto.
  - eapply step_erase; eauto.
  - eapply step_write; eauto.
  - eapply step_remap; eauto.
  - eapply step_deallocate; eauto.
  - eapply step_begin; eauto.
  - eapply step_commit; eauto.
  - eapply step_give_up; eauto.
  - eapply step_copy; eauto.
  - eapply step_reenter; eauto.
  - eapply step_restate; eauto.
  - eapply step_zero; eauto.
  - eapply step_list_aborted; eauto.
  - eapply step_clear_open; eauto.
  - eapply step_unlist; eauto.
  - eapply step_pad; eauto.
  - eapply step_aside; eauto.
  - eapply step_pass; eauto.
  - eapply step_complete; eauto.
  - eapply step_acknowledge; eauto.
  - eapply step_no_effect; eauto.
  - eapply step_power_cut; eauto.
Qed.

Lemma run_inv : forall acts st st', Inv D st -> run D st acts = Some st' -> Inv D st'.
Proof.
  induction acts as [|[a extra] acts IH]; simpl; intros st st' I H.
  - injection H as <-; auto.
  - destruct (step D st a extra) as [st1|] eqn:E; [|discriminate].
    eapply IH; [eapply step_inv; eauto | auto].
Qed.

Lemma reachable_inv : forall st, reachable D st -> Inv D st.
Proof. intros st (acts & H); eapply run_inv; eauto; apply inv_init. Qed.

(** ** The floor never sinks *)

Lemma floor_cut : forall st outs, Inv D st -> may_cut (pend st) outs = true ->
  forall l, floor st l <= newest D (after_cut st outs) l.
Proof.
  intros st outs I Hc l; destruct (i_floor _ _ I l) as [-> | (cl & H1 & <- & H3 & H4)]; [lia|].
  rewrite <- H3; apply (g_dom _ _ _ _ (i_cuts _ _ I _ Hc)); auto.
  eapply durable_landed; eauto.
Qed.

Lemma put_claims_floor : forall st m cs, floor (put_claims st m cs) = floor st.
Proof. intros st [] cs; auto. Qed.

Lemma floor_step : forall st act extra st', Inv D st -> step D st act extra = Some st' ->
  forall l, floor st l <= floor st' l.
Proof.
  intros st act extra st' I H x; destruct act; simpl in H;
    repeat match goal with
    | H : check _ _ = Some _ |- _ => apply check_spec in H as [? H]
    | H : context [match number D st ?m ?ls with _ => _ end] |- _ => destruct (number D st m ls) as [[? ?]|]; [|discriminate]
    | H : context [match data_at D ?i ?a with _ => _ end] |- _ => destruct (data_at D i a) as [[[? ?] ?]|]; [|discriminate]
    | H : context [match word_of st ?n with _ => _ end] |- _ => destruct (word_of st n); [|discriminate]
    | H : context [match zero_guard ?w with _ => _ end] |- _ => destruct (zero_guard w); [|discriminate]
    | H : context [match nth_error ?p ?i with _ => _ end] |- _ => destruct (nth_error p i); [|discriminate]
    | H : context [match words ?i ?w with _ => _ end] |- _ => destruct (words i w); try discriminate
    | H : context [if has D ?g then _ else _] |- _ => rewrite (on g) in H
    end; try (injection H as <-; rewrite ?put_claims_floor; simpl; auto; fail).
  - injection H as <-; simpl; destruct (mem x _); lia.
  - injection H as <-; simpl; destruct (x =? l) eqn:E; [apply Nat.eqb_eq in E; subst|]; lia.
  - injection H as <-; simpl; apply floor_cut; auto.
Qed.

Lemma floor_run : forall acts st st', Inv D st -> run D st acts = Some st' ->
  forall l, floor st l <= floor st' l.
Proof.
  induction acts as [|[a e] acts IH]; simpl; intros st st' I H l.
  - injection H as <-; auto.
  - destruct (step D st a e) as [st1|] eqn:E; [|discriminate].
    apply Nat.le_trans with (floor st1 l); [eapply floor_step; eauto | eapply IH; eauto; eapply step_inv; eauto].
Qed.

End Steps.

(** ** (a) Each LPN reads as its last acknowledged content, or as that of a later command *)

Theorem every_cut_reads_right : forall D st outs, sound_device D -> reachable D st ->
  may_cut (pend st) outs = true ->
  let img := after_cut st outs in
  forall l, floor st l <= newest D img l /\
    (newest D img l = 0 /\ read D img l = 0 \/
     exists cl, In cl (claims st) /\ c_lpn cl = l /\ c_num cl = newest D img l /\
                c_content cl = read D img l).
Proof.
  intros D st outs on R Hc img l; pose proof (reachable_inv D on _ R) as I.
  split; [apply floor_cut; auto|].
  destruct (read_spec D on img l) as [H | [H1 H2]]; auto; right.
  apply (g_truth _ _ _ _ (i_cuts _ _ I _ Hc) _ _ _ H1 H2).
Qed.

(** ** (b) What was superseded or deallocated, acknowledged, never comes back *)

Theorem nothing_comes_back : forall D st acts st' outs, sound_device D -> reachable D st ->
  run D st acts = Some st' -> may_cut (pend st') outs = true ->
  forall l, floor st l <= newest D (after_cut st' outs) l.
Proof.
  intros D st acts st' outs on R H Hc l; pose proof (reachable_inv D on _ R) as I.
  apply Nat.le_trans with (floor st' l); [eapply floor_run; eauto|].
  apply floor_cut; auto; eapply run_inv; eauto.
Qed.

(** An acknowledgement raises the floor to the command's number: [floor] is what it says. *)
Theorem acknowledged_is_floor : forall D st n extra st' cl,
  step D st (Acknowledge n) extra = Some st' -> In cl (claims st) -> c_num cl = n ->
  n <= floor st' (c_lpn cl).
Proof.
  intros D st n extra st' cl H Hcl En; simpl in H; apply check_spec in H as [_ H].
  injection H as <-; simpl.
  assert (M : mem (c_lpn cl) (map c_lpn (filter (fun c => c_num c =? n) (claims st))) = true).
  { apply mem_in, in_map, filter_In; split; auto; apply Nat.eqb_eq; auto. }
  rewrite M; lia.
Qed.

(** What a recovery has shown is the floor from then on, and the tables agree with it. *)
Theorem recovery_is_definite : forall D st outs extra st',
  step D st (PowerCut outs) extra = Some st' ->
  forall l, floor st' l = newest D (after_cut st outs) l /\
            read D (image_now st') l = read D (after_cut st outs) l.
Proof.
  intros D st outs extra st' H l; simpl in H; apply check_spec in H as [_ H].
  injection H as <-; simpl; auto.
Qed.

(** ** (c) A command of several pages is whole or absent *)

Theorem commands_are_whole : forall D st outs cl cl', sound_device D -> reachable D st ->
  may_cut (pend st) outs = true -> In cl (claims st) -> In cl' (claims st) ->
  c_num cl' = c_num cl ->
  let img := after_cut st outs in
  newest D img (c_lpn cl) = c_num cl -> c_num cl <> 0 -> c_num cl <= newest D img (c_lpn cl').
Proof.
  intros D st outs cl cl' on R Hc H H' E img En Nz; pose proof (reachable_inv D on _ R) as I.
  destruct (newest_in D on img (c_lpn cl)) as [Z | (c & Hw & Hn)]; [congruence|].
  rewrite En in Hw, Hn; apply (g_whole _ _ _ _ (i_cuts _ _ I _ Hc) _ _ _ Hw Hn); auto.
Qed.

Theorem commands_in_progress_are_absent : forall D st outs n k, sound_device D -> reachable D st ->
  may_cut (pend st) outs = true -> In (n, k) (running st) -> n <> 0 ->
  forall l, newest D (after_cut st outs) l <> n.
Proof.
  intros D st outs n k on R Hc Hr Nz l E; pose proof (reachable_inv D on _ R) as I.
  destruct (newest_in D on (after_cut st outs) l) as [Z | (c & Hw & Hn)]; [congruence|].
  rewrite E in Hw, Hn; destruct (g_truth _ _ _ _ (i_cuts _ _ I _ Hc) _ _ _ Hw Hn) as (cl & Hcl & _ & En & _).
  apply (i_claims _ _ I) in Hcl as (_ & _ & H & _); rewrite En in H; eapply H; eauto.
Qed.

(** ** (d) Owners: a listed one may be stale, none is missing *)

(** A witness that a superblock's death removes belongs to a listed owner. *)
Theorem no_owner_is_missing : forall D st sb w, sound_device D -> reachable D st ->
  Wit D (image_now st) w ->
  ~ Wit D (land (image_now st) (Store (Life sb) (Num (S (life (image_now st) sb)))) Whole) w ->
  In (w_lpn w) (owners D (image_now st) sb).
Proof.
  intros D st sb w on R Hw Hn; pose proof (reachable_inv D on _ R) as I.
  destruct (in_dec Nat.eq_dec (w_lpn w) (owners D (image_now st) sb)) as [H | H]; auto; exfalso.
  apply Hn; apply (mark_dead_ok D on (image_now st) sb (g_sound _ _ _ _ (good_now D _ I))); auto.
Qed.

(** A collection that has moved the listed live owners may declare the superblock dead:
    the guard accepts. [n']: the witness elsewhere, as new as any that the owner has here. *)
Theorem collection_may_end : forall D st sb extra, sound_device D -> reachable D st ->
  running st = [] ->
  let img := image_now st in
  let dead := land img (Store (Life sb) (Num (S (life img sb)))) Whole in
  (forall l, In l (owners D img sb) -> exists n c,
     newest D img l <= n /\ Wit D dead (W l n c) /\ ~ Hid D img n) ->
  exists st', step D st (MarkDead sb) extra = Some st'.
Proof.
  intros D st sb extra on R Hr img dead Hmoved; simpl; unfold quiet; rewrite !on, Hr; fold img.
  assert (K : keeps D img dead (owners D img sb) = true).
  { apply forallb_forall; intros l Hl; apply Nat.leb_le.
    destruct (Hmoved l Hl) as (n & c & Hle & Hw & Hn).
    apply Nat.le_trans with n; auto; eapply (newest_ge D on); eauto. }
  unfold dead in K; simpl in K; rewrite K; simpl; eauto.
Qed.

(** ** A restatement (a bitmap of deallocations, a page moved with a new number) says
    what the newest command on the LPN said *)

Theorem restatement_repeats : forall D st ls c a extra st' l, sound_device D -> reachable D st ->
  step D st (Restate ls c a) extra = Some st' -> In l ls ->
  let m := newest D (image_now st) l in
  (m = 0 /\ c = 0 \/
   exists cl, In cl (claims st) /\ c_lpn cl = l /\ c_num cl = m /\ c_content cl = c) /\
  (forall cl, In cl (claims st) -> c_lpn cl = l -> c_num cl <= m) /\ drafts st = [].
Proof.
  intros D st ls c a extra st' l on R H Hl m; pose proof (reachable_inv D on _ R) as I.
  pose proof (good_now D _ I) as G; simpl in H; apply check_spec in H as [Hf _].
  rewrite !andb_true_iff, forallb_forall in Hf; destruct Hf as [[_ Hr] Hrun].
  specialize (Hr _ Hl); apply Nat.eqb_eq in Hr; apply (no_running D on) in Hrun.
  split; [|split].
  - destruct (read_spec D on (image_now st) l) as [[H1 H2] | [H1 H2]]; rewrite Hr in *.
    + left; auto.
    + right; apply (g_truth _ _ _ _ G _ _ _ H1 H2).
  - intros cl Hcl <-; apply (g_dom _ _ _ _ G); auto.
    intros j Hj; apply landed_now; eapply (i_claims _ _ I); eauto.
  - eapply no_drafts; eauto.
Qed.
