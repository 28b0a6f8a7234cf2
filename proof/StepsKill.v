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

(** A cut of a clearing: some of the words, and if there is one, all that they wait for. *)
Lemma cut_clear : forall b waits ws p outs', wf p -> may_cut (clear ws waits p) outs' = true ->
  exists outs rs part, outs' = outs ++ rs /\ length p = length outs /\ may_cut p outs = true /\
    view b (clear ws waits p) outs' = zero_all (view b p outs) part /\ incl part ws /\
    (forall w, In w part -> forall j, In j (waits w) -> j < length p -> landed outs j).
Proof.
  intros b waits; induction ws as [|w ws IH]; intros p outs' Hwf H; simpl in *.
  - exists outs', [], []; rewrite app_nil_r; repeat split; auto using may_cut_length; easy.
  - destruct (IH _ _ (wf_issue _ _ _ Hwf) H) as (outs1 & rs & part & -> & L1 & H1 & V1 & P1 & W1).
    destruct (cut_issue b _ _ _ _ Hwf H1) as (outs & r & -> & L & Hc & Hv & Hw & Ht).
    exists outs, (r :: rs), (match r with Whole => w :: part | _ => part end).
    split; [rewrite <- app_assoc; auto|]; split; [auto|]; split; [auto|].
    assert (Old : forall x, In x part -> forall j, In j (waits x) -> j < length p -> landed outs j).
    { intros x Hx j Hj Hlt; apply (landed_snoc outs r); [lia|]; apply (W1 x); auto; rewrite length_issue; lia. }
    split; [rewrite V1, Hv; destruct r; auto; specialize (Ht eq_refl); discriminate|].
    split; [destruct r; intros x Hx; simpl in *; [destruct Hx; auto | auto | auto]|].
    destruct r; auto; intros x [<- | Hx]; [|eauto].
    destruct Hw as [Hw _]; [discriminate | auto].
Qed.

Lemma extends_clear : forall st ws waits, Inv D st -> Extends st (clear ws waits (pend st)).
Proof.
  intros st ws waits I.
  assert (E : forall ws p, Extends st p -> Extends st (clear ws waits p)).
  { clear ws; induction ws as [|w ws IH]; intros p X; simpl; auto; apply IH; destruct X as [X1 X2 X3]; split.
    - apply wf_issue; auto.
    - rewrite length_issue; lia.
    - intros; apply all_durable_issue; auto. }
  apply E; split; auto; eapply i_wf; eauto.
Qed.

Lemma now_clear : forall b waits ws p, now b (clear ws waits p) = zero_all (now b p) ws.
Proof. induction ws as [|w ws IH]; intros p; simpl; auto; rewrite IH, now_issue; auto. Qed.

Lemma step_zero : forall st ws extra st', Inv D st ->
  step D st (ZeroWords ws) extra = Some st' -> Inv D st'.
Proof.
  intros st ws extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  rewrite !andb_true_iff in Hf; destruct Hf as [[Hz Hr] K]; apply no_running in Hr.
  match goal with |- Inv D (put_pend st (clear ws ?f (pend st))) => set (waits := f) end.
  destruct (zero_all_ok D on (image_now st) ws ws (g_sound _ _ _ _ (good_now D st I)) Hz) as (_ & Hn & _);
    [intros x; auto|].
  apply inv_put; auto using extends_clear.
  - rewrite now_clear; auto.
  - intros outs' Hc.
    destruct (cut_clear (base st) waits ws (pend st) outs' (i_wf _ _ I) Hc)
      as (outs & rs & part & -> & Ln & Hc' & Hv & P & W).
    assert (Hl : forall j, j < length (pend st) -> (landed (outs ++ rs) j <-> landed outs j)).
    { intros j Hj; unfold landed; rewrite nth_error_app1 by lia; tauto. }
    exists outs; split; [split; auto|]; intros G; rewrite Hv; fold (old_image st outs).
    destruct (zero_all_ok D on (old_image st outs) ws part (g_sound _ _ _ _ G) Hz P) as (S & Hh & W1 & W2 & W3).
    apply (good_kill D st _ outs _ (old_image st outs) _ G Hl); simpl; auto.
    + intros cl Hcl; apply i_claims with D; auto.
    + apply no_drafts with D; auto.
    + destruct part as [|w part]; [simpl; auto|].
      assert (E : outs = all_whole (pend st)).
      { apply all_landed; auto; intros j Hj; apply (W w); simpl; auto.
        assert (Hw : In w ws) by (apply P; simpl; auto); rewrite forallb_forall in Hz; apply Hz in Hw.
        unfold waits, is_record in *; destruct (zero_guard w); [|discriminate].
        unfold if_on; rewrite on; apply in_or_app; right; apply in_everything; auto. }
      assert (Ei : old_image st outs = image_now st) by (rewrite E; reflexivity).
      rewrite Ei in *; intros l.
      destruct (in_dec Nat.eq_dec l (flat_map (named_by D (image_now st)) ws)) as [Hin | Hin].
      * apply Nat.le_trans with (newest D (zero_all (image_now st) ws) l); [eapply keeps_spec; eauto|].
        apply (newest_mono D on); intros n c Hw Hno; exists n, c; split; auto; split; [apply W3; auto|].
        rewrite (same_hid D _ _ n Hh), <- (same_hid D _ _ n Hn); auto.
      * apply (newest_mono D on); intros n c Hw Hno; exists n, c; split; auto; split; [apply W2; auto|].
        rewrite (same_hid D _ _ n Hh); auto.
Qed.

End StepsKill.
