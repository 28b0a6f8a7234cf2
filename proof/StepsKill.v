(** * Steps that remove witnesses: a superblock's death, the zeroing of a word

    Idea. Such a step waits for everything issued before it. So the only cuts that
    have it are those where everything landed, which is what the tables say; and
    the guard has checked on the tables that no listed LPN loses its newest
    witness. LPNs that are not listed have no witness there ([mark_dead_ok],
    [store_zero_ok]): a listed owner may be stale, none is missing.

    No command is in progress: "nothing is reclaimed within a write". *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds StepsAdd.

Section StepsKill.
Variable D : device.
Hypothesis on : forall g, has D g = true.

Lemma no_running : forall st, quiet D st = true -> running st = [].
Proof. unfold quiet; intros st H; rewrite on in H; destruct (running st); [auto | discriminate]. Qed.

Lemma newest_unlisted : forall img img' ls, same_hiding img img' ->
  (forall w, Wit D img w -> ~ In (w_lpn w) ls -> Wit D img' w) ->
  keeps D img img' ls = true ->
  forall l, newest D img l <= newest D img' l.
Proof.
  intros img img' ls Hh HW K l; destruct (in_dec Nat.eq_dec l ls) as [Hl | Hl].
  - eapply keeps_spec; eauto.
  - apply (newest_mono D on); intros n c Hw Hn; exists n, c; split; auto; split.
    + apply HW; auto.
    + rewrite same_hid; eauto.
Qed.

Lemma inv_kill : forall st w v ls ws, Inv D st -> running st = [] -> is_hiding w = false ->
  (forall j, In j (everything (pend st)) -> In j ws) ->
  (forall img, Sound D img -> img = image_now st ->
     let img' := set_word w v img in
     Sound D img' /\ (forall x, Wit D img' x -> Wit D img x) /\
     (forall x, Wit D img x -> ~ In (w_lpn x) ls -> Wit D img' x)) ->
  keeps D (image_now st) (set_word w v (image_now st)) ls = true ->
  Inv D (put_pend st (issue (Store w v) ws (pend st))).
Proof.
  intros st w v ls ws I Hr Hw He Hk K.
  assert (Hs : forall img, same_hiding img (set_word w v img)) by (intros; apply (store_hiding img w v Hw)).
  apply inv_put; eauto using extends_one.
  - rewrite now_issue; apply Hs.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & [Hc' Hl] & Hv & Hws & _ & T).
    exists outs; split; [split; auto|]; intros G; rewrite Hv; clear Hv.
    assert (Same : r = Absent -> Good D (put_pend st (issue (Store w v) ws (pend st)))
                                     (outs ++ [r]) (old_image st outs)).
    { intros _; apply (good_kill D st _ outs _ (old_image st outs) _ G Hl); simpl; auto;
        try (apply G); try apply same_hiding_refl.
      - intros cl Hcl; apply i_claims with D; auto.
      - apply no_drafts with D; auto. }
    destruct r; auto.
    + assert (E : outs = all_whole (pend st)).
      { apply all_landed; auto; intros j Hj; apply Hws; auto; [discriminate|].
        apply He, in_everything; auto. }
      assert (Ei : old_image st outs = image_now st) by (rewrite E; reflexivity).
      destruct (Hk (old_image st outs) (g_sound _ _ _ _ G) Ei) as (S & W1 & W2).
      apply (good_kill D st _ outs _ (old_image st outs) _ G Hl); simpl; auto.
      * intros cl Hcl; apply i_claims with D; auto.
      * apply no_drafts with D; auto.
      * apply newest_unlisted with ls; auto; rewrite Ei; auto.
    + specialize (T eq_refl); discriminate.
Qed.

Lemma step_mark_dead : forall st sb extra st', Inv D st ->
  step D st (MarkDead sb) extra = Some st' -> Inv D st'.
Proof.
  intros st sb extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  rewrite !andb_true_iff in Hf; destruct Hf as [[_ Hr] K]; apply no_running in Hr.
  apply inv_kill with (ls := owners D (image_now st) sb); auto.
  - unfold if_on; rewrite on; intros j Hj; apply in_or_app; auto.
  - intros img S ->; apply mark_dead_ok; auto.
Qed.

Lemma step_zero : forall st w extra st', Inv D st ->
  step D st (ZeroWord w) extra = Some st' -> Inv D st'.
Proof.
  intros st w extra st' I H; simpl in H.
  destruct (zero_guard w) as [g|] eqn:Hz; [|discriminate].
  apply check_spec in H as [Hf H]; injection H as <-.
  rewrite !andb_true_iff in Hf; destruct Hf as [Hr K]; apply no_running in Hr.
  apply inv_kill with (ls := named_by D (image_now st) w); auto.
  - destruct w; simpl in Hz; congruence || auto.
  - unfold if_on; rewrite on; intros j Hj; apply in_or_app; auto.
  - intros img S ->; apply store_zero_ok with g; auto.
Qed.

End StepsKill.
