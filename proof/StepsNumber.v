(** * Steps that change which numbers count: begin, commit, the aborted list

    Idea. These stores change no witness, only which ones count. The store that
    begins a command names a number that no witness has yet. The commit waits for
    all witnesses of the command, so in every cut that has it all of them are
    there, and start to count together. Recovery moves the number of a command
    that a cut interrupted into the list before it empties the word, and takes it
    from the list when no witness has it. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds StepsAdd.

Section StepsNumber.
Variable D : device.
Hypothesis on : forall g, has D g = true.

Lemma hid_dec : forall img n, Hid D img n \/ ~ Hid D img n.
Proof.
  intros img n; destruct (in_dec Nat.eq_dec n (hidden D img)) as [H | H];
    rewrite (hidden_iff D) in H; auto.
Qed.

(** The witnesses and what counts of them stay as they are. *)
Lemma good_same : forall st st' outs outs' img img',
  Good D st outs img ->
  (forall j, j < length (pend st) -> (landed outs' j <-> landed outs j)) ->
  (forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st)) ->
  (forall d, In d (drafts st) -> forall j, In j (c_needs d) -> j < length (pend st)) ->
  claims st' = claims st -> drafts st' = drafts st -> clock st <= clock st' ->
  Sound D img' -> (forall w, Wit D img' w <-> Wit D img w) ->
  (forall l n c, Wit D img (W l n c) -> (Hid D img' n <-> Hid D img n)) ->
  (forall l n c k, Wit D img (W l n c) -> In (n, k) (running st') -> In (n, k) (running st)) ->
  (forall k n, k < open_words D -> words img' (OpenW k) = Num n -> In n (gone st') \/ In (n, k) (opened st')) ->
  (forall k n, k < open_words D -> words img' (AbortW k) = Num n -> In n (gone st')) ->
  Good D st' outs' img'.
Proof.
  intros st st' outs outs' img img' G Hl Hc Hd Ec Ed Et S HW HH Hr Ho Ha.
  assert (Up : forall l, newest D img l <= newest D img' l).
  { intros l; apply (newest_mono D on); intros n c Hw Hn; exists n, c.
    rewrite HW; split; auto; split; auto; rewrite HH; eauto. }
  split; auto.
  - intros l n c Hw Hn; apply HW in Hw; rewrite HH in Hn by eauto; rewrite Ec.
    eapply (g_truth _ _ _ _ G); eauto.
  - intros l n c Hw Hn cl Hcl En; apply HW in Hw; rewrite HH in Hn by eauto; rewrite Ec in Hcl.
    apply Nat.le_trans with (newest D img (c_lpn cl)); auto; eapply (g_whole _ _ _ _ G); eauto.
  - intros l n c Hw Hn cl Hcl En Em j Hj; apply HW in Hw; rewrite HH in Hn by eauto; rewrite Ec in Hcl.
    apply Hl; [eauto|]; eapply (g_landed _ _ _ _ G); eauto.
  - intros cl Hcl Hn; rewrite Ec in Hcl; apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
    apply (g_dom _ _ _ _ G); auto; intros j Hj; apply Hl; eauto.
  - intros d Hdd Hn; rewrite Ed in Hdd; destruct (g_draft _ _ _ _ G d Hdd) as (c & Hw).
    + intros j Hj; apply Hl; eauto.
    + exists c; apply HW; auto.
  - intros l n c k Hw Hk; apply HW in Hw; rewrite Ed; eapply (g_draft_truth _ _ _ _ G); eauto.
  - intros l n c Hw; apply HW in Hw; apply (g_num _ _ _ _ G) in Hw; lia.
Qed.

(** A cut without the new store: the ghosts may have changed. *)
Lemma good_absent : forall st st' outs outs' img,
  Good D st outs img ->
  (forall j, j < length (pend st) -> (landed outs' j <-> landed outs j)) ->
  (forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st)) ->
  (forall d, In d (drafts st) -> forall j, In j (c_needs d) -> j < length (pend st)) ->
  claims st' = claims st -> drafts st' = drafts st -> clock st <= clock st' ->
  (forall l n c k, Wit D img (W l n c) -> In (n, k) (running st') -> In (n, k) (running st)) ->
  (forall n, In n (gone st) -> In n (gone st')) ->
  (forall x, In x (opened st) -> In x (opened st')) ->
  Good D st' outs' img.
Proof.
  intros st st' outs outs' img G Hl Hc Hd Ec Ed Et Hr Hg Ho.
  apply (good_same st st' outs outs' img img); auto; try tauto; try apply G.
  - intros k n Hk H; destruct (g_open _ _ _ _ G _ _ Hk H); auto.
  - intros k n Hk H; apply Hg; eapply g_abort; eauto.
Qed.

Lemma own_word : forall st outs w v, Within st outs outs ->
  (forall j, In j (positions (conflict (Store w v)) (pend st)) -> landed outs j) ->
  words (old_image st outs) w = words (image_now st) w.
Proof.
  intros st outs w v [Hc _] L.
  assert (E : look (view (base st) (pend st) outs) (KWord w) = look (now (base st) (pend st)) (KWord w)).
  { eapply agree_own; eauto.
    - apply may_cut_length; auto.
    - simpl; destruct (loc_dec w w); auto. }
  simpl in E; injection E as E; auto.
Qed.

Lemma set_word_same : forall w v img, words (set_word w v img) w = v.
Proof. intros; simpl; destruct (loc_dec w w); congruence. Qed.
Lemma set_word_other : forall w v img x, x <> w -> words (set_word w v img) x = words img x.
Proof. intros; simpl; destruct (loc_dec x w); congruence. Qed.

(** One more number that does not count. *)
Lemma hid_add : forall img w n, (exists k, k < open_words D /\ (w = OpenW k \/ w = AbortW k)) ->
  words img w = Zero -> forall m, Hid D (set_word w (Num n) img) m <-> Hid D img m \/ m = n.
Proof.
  intros img w n (k & Hk & Hw) Hz m; split.
  - intros (k' & Hk' & H); destruct (loc_dec (OpenW k') w) as [E | E].
    + rewrite E, set_word_same in H; destruct H as [H | H]; [injection H; auto|].
      rewrite set_word_other in H by (subst; discriminate); left; exists k'; auto.
    + rewrite (set_word_other _ _ _ (OpenW k')) in H by auto.
      destruct (loc_dec (AbortW k') w) as [E' | E'].
      * rewrite E', set_word_same in H; destruct H as [H | H]; [|injection H; auto].
        left; exists k'; auto.
      * rewrite set_word_other in H by auto; left; exists k'; auto.
  - intros [(k' & Hk' & H) | ->].
    + exists k'; split; auto; destruct H as [H | H]; [left | right];
        rewrite set_word_other; auto; intros E; rewrite E in H; congruence.
    + exists k; split; auto; destruct Hw as [-> | ->]; [left | right]; apply set_word_same.
Qed.

Lemma step_begin : forall st k extra st', Inv D st ->
  step D st (Begin k) extra = Some st' -> Inv D st'.
Proof.
  intros st k extra st' I H; simpl in H; apply check_spec in H as [Hf H]; rewrite on in H; injection H as <-.
  rewrite !andb_true_iff, Nat.ltb_lt in Hf; destruct Hf as [[Hk Hz] Hr]; apply is_zero_spec in Hz.
  rewrite forallb_forall in Hr.
  set (n := S (clock st)); set (st' := State _ _ _ _ _ _ _ _ _).
  assert (Hfresh : forall k', ~ In (n, k') (opened st)).
  { intros k' R; apply (i_opened _ _ I) in R; unfold n in R; lia. }
  split; simpl.
  - apply wf_issue, i_wf with D; auto.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & _ & Hcf & T).
    pose proof (i_cuts _ _ I _ (proj1 Hw)) as G; fold (old_image st outs) in G; rewrite Hv.
    assert (Hrun : forall l m c k', Wit D (old_image st outs) (W l m c) ->
              In (m, k') (running st') -> In (m, k') (running st)).
    { unfold st'; simpl; intros l m c k' Hwit [E | R]; auto; exfalso.
      injection E as <- <-; apply (g_num _ _ _ _ G) in Hwit; unfold n in Hwit; lia. }
    assert (Hc1 : forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st))
      by (intros cl Hcl; apply i_claims with D; auto).
    assert (Hc2 : forall d, In d (drafts st) -> forall j, In j (c_needs d) -> j < length (pend st))
      by (intros d Hd; apply (i_drafts D _ I d Hd)).
    destruct r; [| | specialize (T eq_refl); discriminate].
    + assert (Ez : words (old_image st outs) (OpenW k) = Zero).
      { rewrite own_word with (v := Num n); eauto using within_self. apply Hcf; discriminate. }
      destruct (store_hiding_ok D (old_image st outs) (OpenW k) (Num n)) as [S HW]; auto; [apply G|].
      simpl land; apply (good_same st st' outs _ (old_image st outs)); auto; try apply Hw; simpl; try lia.
      * intros l m c Hwit; rewrite hid_add; eauto; apply (g_num _ _ _ _ G) in Hwit; unfold n.
        split; [intros [Hx | ->]; [auto | lia] | auto].
      * intros k' m Hk'; destruct (loc_dec (OpenW k') (OpenW k)) as [E | E]; intros Hm.
        -- injection E as ->; injection Hm as <-; auto.
        -- destruct (g_open _ _ _ _ G _ _ Hk' Hm); auto.
      * intros k' m Hk'; destruct (loc_dec (AbortW k') (OpenW k)) as [E | E]; [discriminate|].
        apply (g_abort _ _ _ _ G); auto.
    + simpl land; apply (good_absent st st' outs); auto; try apply Hw; simpl; auto; lia.
  - intros cl Hcl; destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4).
    split; [unfold n; lia | split; [auto | split]].
    + intros k' [E | R]; [injection E; unfold n; lia | eapply H3; eauto].
    + intros j Hj; rewrite length_issue; apply H4 in Hj; lia.
  - intros d Hd; destruct (i_drafts _ _ I _ Hd) as ((k' & H1) & H2); split; eauto.
    intros j Hj; rewrite length_issue; apply H2 in Hj; lia.
  - intros m k' R; unfold image_now; simpl; rewrite now_issue; simpl.
    destruct R as [E | R].
    + injection E as <- <-; destruct (loc_dec (OpenW k) (OpenW k)); [auto | congruence].
    + destruct (i_running _ _ I _ _ R) as (H1 & H2 & H3); repeat split; auto.
      destruct (loc_dec (OpenW k') (OpenW k)) as [E | E]; auto.
      injection E as ->; apply Hr in R; simpl in R; rewrite Nat.eqb_refl in R; discriminate.
  - intros m k' [E | R].
    + injection E as <- <-; split; [auto | split].
      * intros Hg; apply (i_gone _ _ I) in Hg; unfold n in Hg; lia.
      * intros k' [E | R]; [injection E; auto | exfalso; eapply Hfresh; eauto].
    + destruct (i_opened _ _ I _ _ R) as (H1 & H2 & H3); split; [unfold n; lia | split; auto].
      intros k'' [E | R']; auto; injection E as <- <-; exfalso; eapply Hfresh; eauto.
  - intros m Hg; apply (i_gone _ _ I) in Hg; unfold n; lia.
  - intros l; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; repeat split; auto; apply all_durable_issue; auto.
  - apply (i_multi _ _ I).
Qed.

Lemma put_same : forall st w v ws, Inv D st -> is_hiding w = true ->
  (forall n k, In (n, k) (running st) -> w <> OpenW k) ->
  (forall outs, Within st outs outs -> Good D st outs (old_image st outs) ->
     (forall j, In j ws -> j < length (pend st) -> landed outs j) ->
     (forall j, In j (positions (conflict (Store w v)) (pend st)) -> landed outs j) ->
     let img := old_image st outs in
     (forall l n c, Wit D img (W l n c) -> (Hid D (set_word w v img) n <-> Hid D img n)) /\
     (forall n, v = Num n -> In n (gone st))) ->
  Inv D (put_pend st (issue (Store w v) ws (pend st))).
Proof.
  intros st w v ws I Hw Hr Hcut; split; simpl.
  - apply wf_issue, i_wf with D; auto.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hwi & Hv & Hws & Hcf & T).
    pose proof (i_cuts _ _ I _ (proj1 Hwi)) as G; fold (old_image st outs) in G; rewrite Hv.
    assert (Hc1 : forall cl, In cl (claims st) -> forall j, In j (c_needs cl) -> j < length (pend st))
      by (intros cl Hcl; apply i_claims with D; auto).
    assert (Hc2 : forall d, In d (drafts st) -> forall j, In j (c_needs d) -> j < length (pend st))
      by (intros d Hd; apply (i_drafts D _ I d Hd)).
    destruct r; [| | specialize (T eq_refl); discriminate].
    + destruct (Hcut outs) as [HH Hg]; eauto using within_self;
        [apply Hws; discriminate | apply Hcf; discriminate |].
      destruct (store_hiding_ok D (old_image st outs) w v) as [S HW]; auto; [apply G|].
      simpl land; apply (good_same st _ outs _ (old_image st outs)); simpl; auto; try apply Hwi.
      * intros k n Hk; destruct (loc_dec (OpenW k) w); intros E; [left; auto | eapply g_open; eauto].
      * intros k n Hk; destruct (loc_dec (AbortW k) w); intros E; [auto | eapply g_abort; eauto].
    + simpl land; apply (good_absent st _ outs); simpl; auto; apply Hwi.
  - intros cl Hcl; destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto.
    intros j Hj; rewrite length_issue; apply H4 in Hj; lia.
  - intros d Hd; destruct (i_drafts _ _ I _ Hd) as (H1 & H2); split; eauto.
    intros j Hj; rewrite length_issue; apply H2 in Hj; lia.
  - intros n k R; unfold image_now; simpl; rewrite now_issue; simpl.
    destruct (i_running _ _ I _ _ R) as (H1 & H2 & H3); repeat split; auto.
    destruct (loc_dec (OpenW k) w) as [E | E]; auto; exfalso; eapply Hr; eauto.
  - apply (i_opened _ _ I).
  - apply (i_gone _ _ I).
  - intros l; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; repeat split; auto; apply all_durable_issue; auto.
  - apply (i_multi _ _ I).
Qed.

(** A gone number is hidden wherever a witness has it. *)
Lemma gone_hidden : forall st outs img l n c, Inv D st -> Good D st outs img ->
  Wit D img (W l n c) -> In n (gone st) -> Hid D img n.
Proof.
  intros st outs img l n c I G Hw Hg; destruct (hid_dec img n) as [H | H]; auto; exfalso.
  destruct (g_truth _ _ _ _ G _ _ _ Hw H) as (cl & Hcl & _ & En & _).
  apply (i_claims _ _ I) in Hcl as (_ & Hn & _); congruence.
Qed.

Lemma step_list_aborted : forall st k n extra st', Inv D st ->
  step D st (ListAborted k n) extra = Some st' -> Inv D st'.
Proof.
  intros st k n extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  rewrite !andb_true_iff, Nat.ltb_lt in Hf; destruct Hf as [[Hk Hz] Hg].
  apply is_zero_spec in Hz; apply mem_in in Hg.
  apply put_same; auto.
  - intros; discriminate.
  - intros outs Hw G _ Hcf img; split; [|intros m E; injection E as <-; auto].
    intros l m c Hwit; rewrite hid_add; eauto.
    + split; auto; intros [H | ->]; auto; eapply gone_hidden; eauto.
    + unfold img; rewrite own_word with (v := Num n); auto.
Qed.

Lemma step_clear_open : forall st k extra st', Inv D st ->
  step D st (ClearOpen k) extra = Some st' -> Inv D st'.
Proof.
  intros st k extra st' I H; simpl in H.
  destruct (words (image_now st) (OpenW k)) as [|n| | |] eqn:Hk; try discriminate.
  apply check_spec in H as [Hf H]; injection H as <-; rewrite on in Hf; simpl in Hf.
  apply andb_prop in Hf as [Hg Hj]; apply mem_in in Hg.
  apply existsb_exists in Hj as (j & Hj & Hm); apply mem_in, in_num_of in Hm; rewrite in_seq in Hj.
  apply put_same; auto.
  - intros m k' R E; injection E as <-; apply (i_running _ _ I) in R as (R & Hm' & _).
    rewrite Hk in Hm'; injection Hm' as <-; apply (i_opened _ _ I) in R; tauto.
  - intros outs Hw G Hws Hcf img; split; [|discriminate].
    assert (Hj' : words img (AbortW j) = Num n).
    { unfold img; rewrite word_in_cut; auto; intros i Hi; apply Hws; [|eapply touching_lt; eauto].
      apply in_or_app; right; unfold if_on; rewrite on; apply in_flat_map; exists j; rewrite in_seq; auto. }
    assert (Hk' : words img (OpenW k) = Num n) by (unfold img; rewrite own_word with (v := Zero); auto).
    intros l m c _; split; intros (k' & Hlt & [H | H]).
    + destruct (loc_dec (OpenW k') (OpenW k)) as [E | E].
      * rewrite E, set_word_same in H; discriminate.
      * rewrite set_word_other in H by auto; exists k'; auto.
    + rewrite set_word_other in H by discriminate; exists k'; auto.
    + destruct (loc_dec (OpenW k') (OpenW k)) as [E | E].
      * rewrite E, Hk' in H; injection H as <-; exists j; split; [lia|]; right.
        rewrite set_word_other; [auto | discriminate].
      * exists k'; split; [auto|]; left; rewrite set_word_other; auto.
    + exists k'; split; [auto|]; right; rewrite set_word_other; [auto | discriminate].
Qed.

Lemma step_unlist : forall st k extra st', Inv D st ->
  step D st (Unlist k) extra = Some st' -> Inv D st'.
Proof.
  intros st k extra st' I H; simpl in H.
  destruct (words (image_now st) (AbortW k)) as [|n| | |] eqn:Hk; try discriminate.
  apply check_spec in H as [Hf H]; injection H as <-; rewrite on in Hf; simpl in Hf.
  apply negb_true_iff in Hf.
  apply put_same; auto.
  - intros; discriminate.
  - intros outs Hw G Hws Hcf img; split; [|discriminate].
    assert (Hk' : words img (AbortW k) = Num n) by (unfold img; rewrite own_word with (v := Zero); auto).
    assert (L : forall x, (forall o, touches o x = true -> bears o = true) ->
              look img x = look (image_now st) x).
    { intros x Hx; apply (agree (base st)); [apply may_cut_length, Hw|].
      intros j Hj; apply in_positions in Hj as (q & E & Tq).
      assert (Hj : In j (positions bears (pend st))) by (apply in_positions; eauto).
      apply Hws; [|eapply positions_lt; eauto]; unfold if_on; rewrite on; apply in_or_app; auto. }
    assert (Lc : forall a, cells img a = cells (image_now st) a).
    { intros a; specialize (L (KCell a)); simpl in L; assert (E : @inl cell word (cells img a) = inl (cells (image_now st) a)).
      { apply L; intros [] E; auto; discriminate. } injection E; auto. }
    assert (Lw : forall w, match w with OpenW _ | AbortW _ | Other _ => False | _ => True end ->
              words img w = words (image_now st) w).
    { intros w Hnw; specialize (L (KWord w)); simpl in L;
        assert (E : @inr cell word (words img w) = inr (words (image_now st) w)).
      { apply L; intros [a p|sb blk|x v] E; simpl in *; auto; try discriminate.
        destruct (loc_dec w x); [subst; destruct x; auto; contradiction | discriminate]. } injection E; auto. }
    intros l m c Hwit.
    assert (N : m <> n).
    { intros ->; apply not_true_iff_false in Hf; apply Hf, existsb_exists; exists (W l n c); split.
      - apply (raw_wit D on), (wit_kept D img); auto; intros w; symmetry; [apply Lw; exact Logic.I|].
        apply Lw; destruct w; auto; discriminate.
      - simpl; apply Nat.eqb_refl. }
    split; intros (k' & Hlt & [H | H]).
    + rewrite set_word_other in H by discriminate; exists k'; auto.
    + destruct (loc_dec (AbortW k') (AbortW k)) as [E' | E'].
      * rewrite E', set_word_same in H; discriminate.
      * rewrite set_word_other in H by auto; exists k'; auto.
    + exists k'; split; [auto|]; left; rewrite set_word_other; [auto | discriminate].
    + exists k'; split; [auto|]; right.
      destruct (loc_dec (AbortW k') (AbortW k)) as [E' | E'].
      * rewrite E', Hk' in H; injection H; congruence.
      * rewrite set_word_other; auto.
Qed.

(** A word that recovery does not read. *)
Lemma step_aside : forall st k v extra st', Inv D st ->
  step D st (Aside k v) extra = Some st' -> Inv D st'.
Proof.
  intros st k v extra st' I H; simpl in H; injection H as <-.
  apply (inv_none D on); eauto using extends_one.
  - apply now_hiding; intros; apply store_hiding; auto.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & _ & _ & T).
    exists outs; split; auto; intros img img' G; unfold img'; rewrite Hv; clear img'.
    destruct r; [| | specialize (T eq_refl); discriminate].
    + destruct (store_aside_ok D (old_image st outs) (Other k) (Num v)) as [S HW]; [apply G | exact Logic.I |].
      split; auto; split; auto; apply store_hiding; auto.
    + split; [apply G|]; split; [apply same_hiding_refl | tauto].
Qed.

(** Numbers that no witness gets. *)
Lemma step_pass : forall st n extra st', Inv D st ->
  step D st (Pass n) extra = Some st' -> Inv D st'.
Proof.
  intros st n extra st' I H; simpl in H; injection H as <-; split; simpl; try apply I.
  - intros outs Hc; destruct (i_cuts _ _ I _ Hc); split; auto.
    intros l m c Hw; apply g_num in Hw; simpl; lia.
  - intros cl Hcl; destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto; lia.
  - intros m k R; destruct (i_opened _ _ I _ _ R) as (H1 & H2 & H3); repeat split; auto; lia.
  - intros m H; apply (i_gone _ _ I) in H; lia.
Qed.

Lemma step_commit : forall st n extra st', Inv D st ->
  step D st (Commit n) extra = Some st' -> Inv D st'.
Proof.
  intros st n extra st' I H; simpl in H.
  destruct (word_of st n) as [k|] eqn:Hk; [|discriminate].
  rewrite on in H; injection H as <-; apply word_of_spec in Hk.
  set (mine := filter (fun d => c_num d =? n) (drafts st)).
  set (needs := flat_map c_needs mine).
  set (st' := State _ _ _ _ _ _ _ _ _).
  destruct (i_running _ _ I _ _ Hk) as (Ho & Hword & Hlt).
  destruct (i_opened _ _ I _ _ Ho) as (Hclock & Hngone & Huniq).
  assert (Hmine : forall d, In d mine <-> In d (drafts st) /\ c_num d = n).
  { unfold mine; intros d; rewrite filter_In, Nat.eqb_eq; tauto. }
  assert (Hneeds : forall j, In j needs -> j < length (pend st)).
  { unfold needs; intros j Hj; apply in_flat_map in Hj as (d & Hd & Hj); apply Hmine in Hd as [Hd _].
    apply (i_drafts _ _ I d Hd); auto. }
  assert (Hnew : forall cl, In cl (claims st') <-> In cl (claims st) \/
            exists d, In d mine /\ cl = Claim (c_lpn d) n (c_content d) (needs ++ [length (pend st)]) true None).
  { unfold st'; simpl; intros cl; rewrite in_app_iff, in_map_iff; split; (intros [Hx | (d & H1 & H2)]; [auto | right; eauto]). }
  assert (Hold : forall cl, In cl (claims st) -> c_num cl <> n).
  { intros cl Hcl E; apply (i_claims _ _ I) in Hcl as (_ & _ & H & _); apply (H k); rewrite E; auto. }
  assert (Hdr : forall d, In d (drafts st') <-> In d (drafts st) /\ c_num d <> n).
  { unfold st'; simpl; intros d; rewrite filter_In, negb_true_iff, Nat.eqb_neq; tauto. }
  assert (Hrun : forall m k', In (m, k') (running st') <-> In (m, k') (running st) /\ m <> n).
  { unfold st'; simpl; intros m k'; rewrite filter_In, negb_true_iff, Nat.eqb_neq; simpl; tauto. }
  split.
  - apply wf_issue, i_wf with D; auto.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & T).
    pose proof (i_cuts _ _ I _ (proj1 Hw)) as G; fold (old_image st outs) in G.
    change (base st') with (base st).
    change (pend st') with (issue (Store (OpenW k) Zero) (extra ++ if_on D CommitAfterPages needs) (pend st)).
    rewrite Hv; set (img := old_image st outs) in *.
    assert (Hl : forall need, (forall j, In j need -> j < length (pend st)) ->
              all_landed_in (outs ++ [r]) need -> all_landed_in outs need).
    { intros need Hn A j Hj; apply (proj2 Hw); auto. }
    assert (Hc1 : forall cl, In cl (claims st) -> all_landed_in (outs ++ [r]) (c_needs cl) ->
              c_num cl <= newest D img (c_lpn cl)).
    { intros cl Hcl A; apply (g_dom _ _ _ _ G); auto; apply Hl; auto; apply i_claims with D; auto. }
    assert (Hc2 : forall d, In d (drafts st') -> all_landed_in (outs ++ [r]) (c_needs d) ->
              exists c, Wit D img (W (c_lpn d) (c_num d) c)).
    { intros d Hd A; apply Hdr in Hd as [Hd _]; apply (g_draft _ _ _ _ G); auto; apply Hl; auto.
      apply (i_drafts D _ I d Hd). }
    assert (Hc3 : forall l m c k', Wit D img (W l m c) -> In (m, k') (running st') ->
              exists d, In d (drafts st') /\ c_lpn d = l /\ c_num d = m /\ c_content d = c).
    { intros l m c k' Hwit R; apply Hrun in R as [R N].
      destruct (g_draft_truth _ _ _ _ G _ _ _ _ Hwit R) as (d & Hd & H1 & H2 & H3).
      exists d; rewrite Hdr; repeat split; auto; congruence. }
    destruct r; [| | specialize (T eq_refl); discriminate].
    + (* the commit landed, and with it all witnesses of the command *)
      assert (Hall : all_landed_in outs needs).
      { intros j Hj; apply Hws; auto; [discriminate|].
        apply in_or_app; right; unfold if_on; rewrite on; auto. }
      assert (Hkw : words img (OpenW k) = Num n).
      { unfold img; rewrite own_word with (v := Zero); eauto using within_self. apply Hcf; discriminate. }
      destruct (store_hiding_ok D img (OpenW k) Zero) as [S HW]; auto; [apply G|].
      simpl land; set (img' := set_word (OpenW k) Zero img) in *.
      assert (HH : forall m, Hid D img' m <-> Hid D img m /\ m <> n).
      { intros m; split.
        - intros (k' & Hlt' & H); unfold img' in H; destruct (loc_dec (OpenW k') (OpenW k)) as [E | E].
          + rewrite E, set_word_same in H; destruct H as [H | H]; [discriminate|].
            rewrite set_word_other in H by discriminate; split; [exists k'; auto|].
            intros ->; apply Hngone; eapply g_abort; eauto.
          + rewrite !set_word_other in H by (auto; discriminate); split; [exists k'; auto|].
            intros ->; destruct H as [H | H].
            * destruct (g_open _ _ _ _ G _ _ Hlt' H) as [H' | H']; [auto|]; apply Huniq in H'; congruence.
            * apply Hngone; eapply g_abort; eauto.
        - intros ((k' & Hlt' & H) & N); exists k'; split; auto; destruct H as [H | H]; [left | right];
            unfold img'; rewrite set_word_other; auto; try discriminate.
          intros E; rewrite E, Hkw in H; injection H; congruence. }
      assert (Up : forall l, newest D img l <= newest D img' l).
      { intros l; apply (newest_mono D on); intros m c Hwit Hn; exists m, c.
        rewrite HW, HH; split; auto; split; auto; tauto. }
      assert (Mine : forall d, In d mine -> n <= newest D img' (c_lpn d)).
      { intros d Hd; apply Hmine in Hd as Hd'; destruct Hd' as [Hd' En].
        destruct (g_draft _ _ _ _ G d Hd') as (c & Hwit).
        - intros j Hj; apply Hall; unfold needs; apply in_flat_map; eauto.
        - rewrite En in Hwit; eapply (newest_ge D on); [apply HW; eauto | rewrite HH; intros [_ Nx]; auto]. }
      split; auto.
      * intros l m c Hwit Hn; apply HW in Hwit; destruct (Nat.eq_dec m n) as [-> | N].
        -- destruct (g_draft_truth _ _ _ _ G _ _ _ _ Hwit Hk) as (d & Hd & H1 & H2 & H3).
           eexists; split; [apply Hnew; right; exists d; rewrite Hmine; auto | simpl; auto].
        -- rewrite HH in Hn; destruct (g_truth _ _ _ _ G _ _ _ Hwit) as (cl & Hcl & E); [tauto|].
           exists cl; rewrite Hnew; auto.
      * intros l m c Hwit Hn cl Hcl En; apply HW in Hwit; apply Hnew in Hcl as [Hcl | (d & Hd & ->)].
        -- apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
           eapply (g_whole _ _ _ _ G); eauto; intros Hx; apply Hn, HH; split; auto.
           rewrite <- En; auto.
        -- simpl in *; subst m; auto.
      * intros l m c Hwit Hn cl Hcl En Em; apply HW in Hwit; apply Hnew in Hcl as [Hcl | (d & Hd & ->)].
        -- intros j Hj; apply (proj2 Hw); [eapply i_claims; eauto|].
           eapply (g_landed _ _ _ _ G); eauto; intros Hx; apply Hn, HH; split; auto.
           rewrite <- En; auto.
        -- simpl; intros j Hj; apply in_app_or in Hj as [Hj | [<- | []]].
           ++ apply landed_snoc_up; auto.
           ++ rewrite Ln; apply landed_last; auto.
      * intros cl Hcl A; apply Hnew in Hcl as [Hcl | (d & Hd & ->)]; simpl in *; auto.
        apply Nat.le_trans with (newest D img (c_lpn cl)); auto.
      * intros d Hd A; destruct (Hc2 d Hd A) as (c & Hwit); exists c; apply HW; auto.
      * intros l m c k' Hwit R; apply HW in Hwit; eauto.
      * intros k' m Hk'; unfold img'; simpl; destruct (loc_dec (OpenW k') (OpenW k)); [discriminate|].
        apply (g_open _ _ _ _ G); auto.
      * intros k' m Hk'; unfold img'; simpl; destruct (loc_dec (AbortW k') (OpenW k)); [discriminate|].
        apply (g_abort _ _ _ _ G); auto.
      * intros l m c Hwit; apply HW in Hwit; eapply (g_num _ _ _ _ G); eauto.
    + (* without the commit none of its witnesses counts *)
      simpl land; split; auto; try apply G.
      * intros l m c Hwit Hn; destruct (g_truth _ _ _ _ G _ _ _ Hwit Hn) as (cl & Hcl & E).
        exists cl; rewrite Hnew; auto.
      * intros l m c Hwit Hn cl Hcl En; apply Hnew in Hcl as [Hcl | (d & Hd & ->)].
        -- eapply (g_whole _ _ _ _ G); eauto.
        -- simpl in *; subst m; exfalso; destruct (g_truth _ _ _ _ G _ _ _ Hwit Hn) as (cl & Hcl & _ & E & _).
           eapply Hold; eauto.
      * intros l m c Hwit Hn cl Hcl En Em; apply Hnew in Hcl as [Hcl | (d & Hd & ->)].
        -- intros j Hj; apply (proj2 Hw); [eapply i_claims; eauto|]; eapply (g_landed _ _ _ _ G); eauto.
        -- simpl in *; subst m; exfalso; destruct (g_truth _ _ _ _ G _ _ _ Hwit Hn) as (cl & Hcl & _ & E & _).
           eapply Hold; eauto.
      * intros cl Hcl A; apply Hnew in Hcl as [Hcl | (d & Hd & ->)]; auto; exfalso; simpl in A.
        assert (X : landed (outs ++ [Absent]) (length (pend st))) by (apply A, in_or_app; simpl; auto).
        rewrite Ln in X; apply (landed_last outs) in X; discriminate.
  - intros cl Hcl; apply Hnew in Hcl as [Hcl | (d & Hd & ->)].
    + destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto.
      * intros k' R; apply Hrun in R as [R _]; eapply H3; eauto.
      * intros j Hj; apply H4 in Hj; change (pend st') with (issue (Store (OpenW k) Zero) (extra ++ if_on D CommitAfterPages needs) (pend st)); rewrite length_issue; lia.
    + simpl; repeat split; auto.
      * intros k' R; apply Hrun in R; tauto.
      * intros j Hj; rewrite length_issue; apply in_app_or in Hj as [Hj | [<- | []]]; [apply Hneeds in Hj|]; lia.
  - intros d Hd; apply Hdr in Hd as [Hd N]; destruct (i_drafts _ _ I _ Hd) as ((k' & H1) & H2); split.
    + exists k'; apply Hrun; auto.
    + intros j Hj; apply H2 in Hj; change (pend st') with (issue (Store (OpenW k) Zero) (extra ++ if_on D CommitAfterPages needs) (pend st)); rewrite length_issue; lia.
  - intros m k' R; apply Hrun in R as [R N]; destruct (i_running _ _ I _ _ R) as (H1 & H2 & H3).
    repeat split; auto; unfold image_now; simpl; rewrite now_issue; simpl.
    destruct (loc_dec (OpenW k') (OpenW k)) as [E | E]; auto.
    rewrite E, Hword in H2; injection H2; congruence.
  - apply (i_opened _ _ I).
  - apply (i_gone _ _ I).
  - intros l; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; rewrite Hnew; repeat split; auto; apply all_durable_issue; auto.
  - intros cl cl' H H' E; apply Hnew in H as [H | (d & Hd & ->)]; apply Hnew in H' as [H' | (d' & Hd' & ->)]; simpl in *.
    + eapply (i_multi _ _ I); eauto.
    + exfalso; eapply Hold; eauto.
    + exfalso; eapply Hold; eauto.
    + split; auto; discriminate.
Qed.

(** A command that is given up: its number joins those that a cut interrupted. *)
Lemma step_give_up : forall st n extra st', Inv D st ->
  step D st (GiveUp n) extra = Some st' -> Inv D st'.
Proof.
  intros st n extra st' I H; simpl in H.
  destruct (word_of st n) as [k|] eqn:Hk; [|discriminate]; injection H as <-; apply word_of_spec in Hk.
  destruct (i_running _ _ I _ _ Hk) as (Ho & _ & _).
  assert (Hrun : forall (l : list (wsn * nat)) m k', In (m, k') (filter (fun r => negb (fst r =? n)) l)
            <-> In (m, k') l /\ m <> n).
  { intros l m k'; rewrite filter_In, negb_true_iff, Nat.eqb_neq; simpl; tauto. }
  assert (Hdr : forall d, In d (filter (fun d => negb (c_num d =? n)) (drafts st)) <->
            In d (drafts st) /\ c_num d <> n).
  { intros d; rewrite filter_In, negb_true_iff, Nat.eqb_neq; tauto. }
  split; simpl; try apply I.
  - intros outs Hc; destruct (i_cuts _ _ I _ Hc); split; simpl; auto.
    + intros d Hd; apply Hdr in Hd as [Hd _]; auto.
    + intros l m c k' Hw R; apply Hrun in R as [R N].
      destruct (g_draft_truth _ _ _ _ Hw R) as (d & Hd & H1 & H2 & H3).
      exists d; rewrite Hdr; repeat split; auto; congruence.
    + intros k' m Hlt E; destruct (g_open _ _ Hlt E) as [Hg | R]; auto.
      destruct (Nat.eq_dec m n); [left; auto | right; apply Hrun; auto].
    + intros k' m Hlt E; right; eauto.
  - intros cl Hcl; destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto.
    + intros [E | Hg]; [eapply H3; rewrite <- E; eauto | auto].
    + intros k' R; apply Hrun in R as [R _]; eapply H3; eauto.
  - intros d Hd; apply Hdr in Hd as [Hd N]; destruct (i_drafts _ _ I _ Hd) as ((k' & R) & H); split; auto.
    exists k'; apply Hrun; auto.
  - intros m k' R; apply Hrun in R as [R N]; destruct (i_running _ _ I _ _ R) as (H1 & H2 & H3).
    repeat split; auto; apply Hrun; auto.
  - intros m k' R; apply Hrun in R as [R N]; destruct (i_opened _ _ I _ _ R) as (H1 & H2 & H3).
    split; auto; split; [intros [E | Hg]; auto | intros k'' R'; apply Hrun in R' as [R' _]; auto].
  - intros m [<- | Hg]; [eapply i_opened; eauto | apply (i_gone _ _ I); auto].
Qed.

End StepsNumber.
