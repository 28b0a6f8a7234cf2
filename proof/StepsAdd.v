(** * The steps of Adds.v, one by one

    Idea. For each action: read off what the guard has checked and what the new
    operation waits for, carry the checks over to the cut ([agree]), and apply
    the lemma on the single operation (Images.v). *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds.

Section StepsAdd.
Variable D : device.
Hypothesis on : forall g, has D g = true.

Lemma within_one : forall st o ws outs', Inv D st -> may_cut (issue o ws (pend st)) outs' = true ->
  exists outs r, outs' = outs ++ [r] /\ length (pend st) = length outs /\ Within st outs outs' /\
    view (base st) (issue o ws (pend st)) outs' = land (old_image st outs) o r /\
    (r <> Absent -> forall j, In j ws -> j < length (pend st) -> landed outs j) /\
    (r <> Absent -> forall j, In j (positions (conflict o) (pend st)) -> landed outs j) /\
    (r = TornUp -> is_store o = false).
Proof.
  intros st o ws outs' I H.
  destruct (cut_issue (base st) _ _ _ _ (i_wf _ _ I) H) as (outs & r & -> & L & Hc & Hv & Hw & Ht).
  exists outs, r; repeat split; auto; try (apply landed_snoc; lia); apply Hw; auto.
Qed.

Lemma within_two : forall st o ws o' ws' outs', Inv D st ->
  may_cut (issue o' ws' (issue o ws (pend st))) outs' = true ->
  exists outs r r', outs' = (outs ++ [r]) ++ [r'] /\ length (pend st) = length outs /\
    Within st outs outs' /\
    view (base st) (issue o' ws' (issue o ws (pend st))) outs' = land (land (old_image st outs) o r) o' r' /\
    (r <> Absent -> forall j, In j ws -> j < length (pend st) -> landed outs j) /\
    (r' <> Absent -> forall j, In j ws' -> j < length (pend st) -> landed outs j) /\
    (r = TornUp -> is_store o = false) /\ (r' = TornUp -> is_store o' = false) /\
    (all_landed_in outs' [length (pend st); S (length (pend st))] <-> r = Whole /\ r' = Whole).
Proof.
  intros st o ws o' ws' outs' I H.
  destruct (cut_issue (base st) _ _ _ _ (wf_issue _ _ _ (i_wf _ _ I)) H)
    as (outs1 & r' & -> & L1 & Hc1 & Hv1 & Hw1 & Ht1).
  destruct (cut_issue (base st) _ _ _ _ (i_wf _ _ I) Hc1) as (outs & r & -> & L & Hc & Hv & Hw & Ht).
  rewrite app_length in L1; simpl in L1.
  exists outs, r, r'; split; auto; split; auto; split; [split; auto|].
  - intros j Hj; rewrite landed_snoc by (rewrite app_length; simpl; lia); apply landed_snoc; lia.
  - split; [rewrite Hv1, Hv; auto|].
    split; [intros N; apply Hw; auto|].
    split; [intros N j Hj Hlt; apply (landed_snoc outs r); [lia|];
            destruct (Hw1 N) as [Hx _]; apply Hx; auto; rewrite length_issue; lia|].
    split; auto; split; auto; split.
    2:{ intros [-> ->] j [<- | [<- | []]].
        - apply landed_snoc_up; rewrite L; apply landed_last; auto.
        - replace (S (length (pend st))) with (length (outs ++ [Whole])) by (rewrite app_length; simpl; lia).
          apply landed_last; auto. }
    intros A; split.
    + apply (landed_last outs); rewrite <- L; apply (landed_snoc _ r'); [rewrite app_length; simpl; lia|].
      apply A; simpl; auto.
    + apply (landed_last (outs ++ [r])).
      rewrite app_length; simpl; rewrite <- L, Nat.add_1_r; apply A; simpl; auto.
Qed.

Lemma landed_one : forall outs r n, n = length outs -> (r = Whole <-> all_landed_in (outs ++ [r]) [n]).
Proof.
  intros outs r n ->; rewrite <- (landed_last outs r); split.
  - intros H j [<- | []]; auto.
  - intros H; apply H; simpl; auto.
Qed.

(** ** From checks on the tables to facts in the cut *)

Lemma cell_in_cut : forall st outs a, Within st outs outs -> (forall j, In j (touching (KCell a) (pend st)) -> landed outs j) ->
  cells (old_image st outs) a = cells (image_now st) a.
Proof. intros st outs a [H _] L; apply agree_cell; auto; apply may_cut_length; auto. Qed.

Lemma word_in_cut : forall st outs w, Within st outs outs -> (forall j, In j (touching (KWord w) (pend st)) -> landed outs j) ->
  words (old_image st outs) w = words (image_now st) w.
Proof. intros st outs w [H _] L; apply agree_word; auto; apply may_cut_length; auto. Qed.

Lemma within_self : forall st outs outs', Within st outs outs' -> Within st outs outs.
Proof. intros st outs outs' [H _]; split; auto; tauto. Qed.

Lemma life_in_cut : forall st outs sb, Within st outs outs ->
  (forall j, In j (touching (KWord (Life sb)) (pend st)) -> landed outs j) ->
  life (old_image st outs) sb = life (image_now st) sb.
Proof. intros st outs sb H L; unfold life; rewrite word_in_cut; auto. Qed.

(** A page that the tables show is in place. *)
Lemma data_in_cut : forall st outs a names n c, Within st outs outs ->
  data_at D (image_now st) a = Some (names, n, c) ->
  (forall j, In j (place_waits (pend st) a) -> landed outs j) ->
  exists i, cells (old_image st outs) a = Page (Data names n i c) /\
    place (old_image st outs) (sb_of a) i /\ i = life (image_now st) (sb_of a).
Proof.
  intros st outs a names n c Hw H L; apply (data_at_iff D on) in H as (i & Hc & Hi & Hh).
  unfold place_waits in L; exists i; rewrite cell_in_cut; auto.
  - unfold place; rewrite life_in_cut, cell_in_cut; auto; intros j Hj; apply L; rewrite !in_app_iff; auto.
  - intros j Hj; apply L; rewrite !in_app_iff; auto.
Qed.

Lemma head_ok_spec : forall img sb, head_ok D img sb = true ->
  cells img (head_at sb) = Page (Head (life img sb)).
Proof.
  unfold head_ok, present; intros img sb H; destruct (cells img (head_at sb)) as [| |[i|]]; try discriminate.
  rewrite on in H; simpl in H; apply Nat.eqb_eq in H; subst; auto.
Qed.

Lemma is_erased_spec : forall c, is_erased c = true -> c = Erased.
Proof. intros []; simpl; congruence. Qed.
Lemma is_zero_spec : forall v, is_zero v = true -> v = Zero.
Proof. intros []; simpl; congruence. Qed.

(** A free page is free in the cut. *)
Lemma free_in_cut : forall st outs a ns n c, Within st outs outs ->
  is_free_page D (image_now st) a = true ->
  (forall j, In j (data_waits D (pend st) a) -> landed outs j) ->
  (forall j, In j (positions (conflict (Program a (Data ns n (life (image_now st) (sb_of a)) c))) (pend st)) -> landed outs j) ->
  let img := old_image st outs in
  In a (addrs D) /\ a <> head_at (sb_of a) /\ cells img a = Erased /\
  life img (sb_of a) = life (image_now st) (sb_of a) /\ place img (sb_of a) (life img (sb_of a)).
Proof.
  intros st outs a ns n c Hw H L Lc img; unfold is_free_page in H; rewrite !andb_true_iff in H.
  destruct H as [[[H1 H2] H3] H4]; unfold data_waits, if_on in L; rewrite on in L.
  assert (El : life img (sb_of a) = life (image_now st) (sb_of a)).
  { apply life_in_cut; auto; intros j Hj; apply L; rewrite in_app_iff; auto. }
  repeat split; auto.
  - apply in_addrs; auto.
  - destruct (addr_dec a (head_at (sb_of a))); congruence.
  - unfold img, old_image.
    assert (E : look (view (base st) (pend st) outs) (KCell a) = look (now (base st) (pend st)) (KCell a)).
    { eapply agree_own; eauto.
      - apply may_cut_length, Hw.
      - simpl; destruct (addr_dec a a); auto. }
    simpl in E; injection E as ->; apply is_erased_spec; auto.
  - rewrite El; unfold img; rewrite cell_in_cut; auto.
    + apply head_ok_spec; auto.
    + intros j Hj; apply L; rewrite in_app_iff; auto.
Qed.

Lemma check_spec : forall b st st', check b st = Some st' -> b = true /\ st = Some st'.
Proof. intros [] st st' H; simpl in H; auto; discriminate. Qed.

Lemma number_lt : forall st m ls n ws, number D st m ls = Some (n, ws) ->
  forall j, In j ws -> j < length (pend st).
Proof.
  intros st m ls n ws H j Hj; apply (number_spec D on) in H as H'; destruct m.
  - destruct H' as (_ & k & _ & ->); eapply positions_lt; eauto.
  - unfold number in H; injection H as <- <-; easy.
Qed.

Lemma touching_lt : forall k p j, In j (touching k p) -> j < length p.
Proof. intros; eapply positions_lt; eauto. Qed.

Lemma place_waits_lt : forall p a j, In j (place_waits p a) -> j < length p.
Proof. unfold place_waits; intros p a j; rewrite !in_app_iff; intuition eauto using touching_lt. Qed.

Lemma data_waits_lt : forall p a j, In j (data_waits D p a) -> j < length p.
Proof.
  unfold data_waits, if_on; intros p a j; rewrite on, !in_app_iff; intuition eauto using touching_lt.
Qed.

Lemma slot_waits_lt : forall p a j, In j (slot_waits p a) -> j < length p.
Proof. unfold slot_waits; intros p a j; rewrite !in_app_iff; intuition eauto using touching_lt. Qed.

(** What a program of a data page leaves, in whatever state it ends. *)
Lemma program_result : forall st outs a ns n c r, Within st outs outs ->
  Sound D (old_image st outs) -> is_free_page D (image_now st) a = true ->
  (r <> Absent -> forall j, In j (data_waits D (pend st) a) -> landed outs j) ->
  (r <> Absent -> forall j, In j (positions (conflict (Program a (Data ns n (life (image_now st) (sb_of a)) c))) (pend st)) -> landed outs j) ->
  let img := old_image st outs in
  let img' := land img (Program a (Data ns n (life (image_now st) (sb_of a)) c)) r in
  Sound D img' /\ same_hiding img img' /\
  (forall w, Wit D img' w <-> Wit D img w \/ (r = Whole /\ exists l, In l ns /\ w = W l n c)).
Proof.
  intros st outs a ns n c r Hw S Hf L Lc img img'; destruct r.
  - destruct (free_in_cut st outs a ns n c Hw Hf) as (H1 & H2 & H3 & H4 & H5); try (apply L || apply Lc; discriminate).
    fold img in H3, H4, H5.
    assert (E : img' = set_cell a (Page (Data ns n (life img (sb_of a)) c)) img).
    { unfold img'; simpl; rewrite H3, H4; auto. }
    split; [|split].
    + rewrite E; apply set_cell_sound; auto.
    + apply program_hiding.
    + intros w; rewrite E, set_cell_wit_data; auto; intuition.
  - unfold img'; simpl; split; [auto|split; [apply same_hiding_refl|]].
    intros w; split; auto; intros [H | [H _]]; [auto | discriminate].
  - destruct (free_in_cut st outs a ns n c Hw Hf) as (H1 & H2 & H3 & H4 & H5); try (apply L || apply Lc; discriminate).
    fold img in H3; split; [|split].
    + apply set_cell_sound; auto.
    + apply program_hiding.
    + intros w; unfold img'; simpl; rewrite set_cell_wit_same; auto.
      split; auto; intros [H | [H _]]; [auto | discriminate].
Qed.

Lemma now_hiding : forall st o ws,
  (forall img, same_hiding img (land img o Whole)) ->
  same_hiding (image_now st) (now (base st) (issue o ws (pend st))).
Proof. intros; rewrite now_issue; auto. Qed.

Lemma step_write : forall st m l c a extra st', Inv D st ->
  step D st (Write m l c a) extra = Some st' -> Inv D st'.
Proof.
  intros st m l c a extra st' I H; simpl in H.
  destruct (number D st m [l]) as [[n ws]|] eqn:Hn; [|discriminate].
  apply check_spec in H as [Hf H]; injection H as <-.
  eapply (inv_witness D on) with (multi := false) (after := fun _ => None) (c := c) (needs := [length (pend st)]);
    eauto using extends_one.
  - intros _ x y [<-|[]] [<-|[]]; auto.
  - intros j [<-|[]]; rewrite length_issue; lia.
  - apply now_hiding; intros; apply program_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs, (match r with Whole => true | _ => false end); split; auto.
    split; [|split].
    + destruct r; try discriminate; intros _ j Hj; apply Hws; [discriminate| |eapply number_lt; eauto].
      rewrite !in_app_iff; auto.
    + rewrite <- (landed_one outs r (length (pend st))) by auto; destruct r; intuition discriminate.
    + intros img img' G; unfold img'; rewrite Hv.
      destruct (program_result st outs a [l] n c r) as (S & Hh & HW); eauto using within_self.
      * apply G.
      * intros Nr j Hj; apply Hws; auto; [rewrite !in_app_iff; auto | eapply data_waits_lt; eauto].
      * split; auto; split; auto; intros w; rewrite HW; destruct r; intuition discriminate.
Qed.

Lemma step_restate : forall st ls c a extra st', Inv D st ->
  step D st (Restate ls c a) extra = Some st' -> Inv D st'.
Proof.
  intros st ls c a extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  apply andb_prop in Hf as [Hf _]; apply andb_prop in Hf as [Hf _].
  match goal with |- Inv D (State _ ?p _ _ _ _ (_ ++ ?cs) _ _) =>
    change (Inv D (put_claims (put_pend st p) None cs)) end.
  apply (inv_witness D on) with (ls := ls) (n := S (clock st)) (ws := []) (c := c) (multi := true) (after := fun l => some (newest D (image_now st) l))
    (needs := [length (pend st)]);
    eauto using extends_one.
  - discriminate.
  - intros j [<-|[]]; rewrite length_issue; lia.
  - apply now_hiding; intros; apply program_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs, (match r with Whole => true | _ => false end); split; auto.
    split; [|split].
    + intros _ j [].
    + rewrite <- (landed_one outs r (length (pend st))) by auto; destruct r; intuition discriminate.
    + intros img img' G; unfold img'; rewrite Hv.
      destruct (program_result st outs a ls (S (clock st)) c r) as (Sd & Hh & HW); eauto using within_self.
      * apply G.
      * intros Nr j Hj; apply Hws; auto; [rewrite !in_app_iff; auto | eapply data_waits_lt; eauto].
      * split; auto; split; auto; intros w; rewrite HW; destruct r; intuition discriminate.
Qed.

Lemma step_copy : forall st ls n a a' extra st', Inv D st ->
  step D st (Copy ls n a a') extra = Some st' -> Inv D st'.
Proof.
  intros st ls n a a' extra st' I H; simpl in H.
  destruct (data_at D (image_now st) a) as [[[names n0] c]|] eqn:Hd; [|discriminate].
  apply check_spec in H as [Hf H]; injection H as <-; apply andb_prop in Hf as [Hf Hvis].
  set (own := (n0 =? n) && forallb (fun l => mem l names) ls) in *.
  apply (inv_again D on) with (ls := ls) (n := n) (c := c) (own := own); eauto using extends_one.
  - apply now_hiding; intros; apply program_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs, (match r with Whole => true | _ => false end); split; auto; split.
    + destruct r; try discriminate; intros _ Ho j Hj; apply Hws; [discriminate| |].
      * rewrite Ho; unfold if_on; rewrite on, !in_app_iff; auto.
      * unfold ends in Hj; apply in_flat_map in Hj as (cl & Hcl & Hj); apply filter_In in Hcl as [Hcl _].
        eapply (i_claims _ _ I); eauto.
    + intros img img' G; split.
      * destruct r; try discriminate; intros _ Ho.
        destruct (data_in_cut st outs a names n0 c) as (i & Hcell & Hp & _); eauto using within_self.
        { intros j Hj; apply Hws; [discriminate| |eapply place_waits_lt; eauto]; rewrite !in_app_iff; auto. }
        apply andb_prop in Ho as [E M]; apply Nat.eqb_eq in E; subst n0; rewrite forallb_forall in M.
        intros l Hl; specialize (M l Hl); apply mem_in in M; econstructor 1; eauto; eapply s_range; eauto; apply G.
      * unfold img'; rewrite Hv.
        destruct (program_result st outs a' ls n c r) as (S & Hh & HW); eauto using within_self.
        { apply G. }
        { intros Nr j Hj; apply Hws; auto; [rewrite !in_app_iff; auto | eapply data_waits_lt; eauto]. }
        split; auto; split; auto; intros w; rewrite HW; destruct r; intuition discriminate.
Qed.

(** A page that names no LPN, and a word that recovery does not read. *)
Lemma step_pad : forall st a extra st', Inv D st ->
  step D st (Pad a) extra = Some st' -> Inv D st'.
Proof.
  intros st a extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  apply (inv_none D on); eauto using extends_one.
  - apply now_hiding; intros; apply program_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs; split; auto; intros img img' G; unfold img'; rewrite Hv; clear img'.
    destruct (program_result st outs a [] 0 0 r) as (S & Hh & HW); eauto using within_self.
    + apply G.
    + intros Nr j Hj; apply Hws; auto; [rewrite !in_app_iff; auto | eapply data_waits_lt; eauto].
    + split; auto; split; auto; intros w; rewrite HW; split; auto; intros [Hx | (_ & l & [] & _)]; auto.
Qed.

Lemma step_open_superblock : forall st sb kept extra st', Inv D st ->
  step D st (OpenSuperblock sb kept) extra = Some st' -> Inv D st'.
Proof.
  intros st sb kept extra st' I H; simpl in H; apply check_spec in H as [Hf H]; injection H as <-.
  apply andb_prop in Hf as [Hf _]; apply andb_prop in Hf as [Hr He]; apply is_erased_spec in He; apply in_addrs in Hr.
  apply (inv_none D on); eauto using extends_one.
  - apply now_hiding; intros; apply program_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs; split; auto; intros img img' G; unfold img'; rewrite Hv; clear img'.
    assert (F : r <> Absent -> cells img (head_at sb) = Erased /\ life img sb = life (image_now st) sb).
    { intros Nr; split.
      - assert (E : look (view (base st) (pend st) outs) (KCell (head_at sb))
                    = look (now (base st) (pend st)) (KCell (head_at sb))).
        { eapply agree_own; auto. 2: apply Hcf; auto. simpl; destruct (addr_dec (head_at sb) (head_at sb)); auto. }
        simpl in E; injection E as E; unfold img, old_image; rewrite E; auto.
      - apply life_in_cut; [eapply within_self; eauto|].
        intros j Hj; apply Hws; auto; [rewrite !in_app_iff; auto | eapply touching_lt; eauto]. }
    destruct r.
    + destruct F as [F1 F2]; [discriminate|].
      change (land (old_image st outs) (Program (head_at sb) (Head (life (image_now st) sb))) Whole)
        with (match cells img (head_at sb) with
              | Erased => set_cell (head_at sb) (Page (Head (life (image_now st) sb))) img
              | _ => set_cell (head_at sb) Torn img end).
      rewrite F1; split; [|split].
      * apply set_cell_sound; auto; apply G.
      * intros w _; auto.
      * intros w; apply set_cell_wit_same; auto; apply G.
    + split; [apply G|]; split; [apply same_hiding_refl | tauto].
    + destruct F as [F1 F2]; [discriminate|]; split; [|split].
      * apply set_cell_sound; auto; apply G.
      * intros w _; auto.
      * intros w; apply set_cell_wit_same; auto; apply G.
Qed.

Lemma step_erase : forall st sb blk extra st', Inv D st ->
  step D st (EraseBlock sb blk) extra = Some st' -> Inv D st'.
Proof.
  intros st sb blk extra st' I H; simpl in H; rewrite on in H; apply check_spec in H as [Hf H]; injection H as <-.
  apply (inv_none D on); eauto using extends_one.
  - apply now_hiding; intros; apply erase_hiding.
  - intros outs' Hc.
    destruct (within_one _ _ _ _ I Hc) as (outs & r & -> & Ln & Hw & Hv & Hws & Hcf & _).
    exists outs; split; auto; intros img img' G; unfold img'; rewrite Hv; clear img'.
    assert (F : r <> Absent -> forall a p, in_block sb blk a = true -> cells img a = Page p -> inc_of p <> life img sb).
    { intros Nr a p Hb Hp.
      assert (E : look (view (base st) (pend st) outs) (KCell a) = look (now (base st) (pend st)) (KCell a)).
      { eapply agree_own; auto. 2: apply Hcf; auto. exact Hb. }
      simpl in E; injection E as E.
      assert (El : life img sb = life (image_now st) sb).
      { apply life_in_cut; [eapply within_self; eauto|]; intros j Hj; apply Hws; auto.
        - unfold if_on; rewrite on, in_app_iff; auto.
        - eapply touching_lt; eauto. }
      rewrite El; unfold stale_block in Hf; rewrite forallb_forall in Hf.
      assert (Ha : In a (addrs D)) by (eapply s_range; eauto; apply G).
      specialize (Hf a Ha); rewrite Hb in Hf; simpl in Hf.
      change (cells (image_now st) a) with (cells (now (base st) (pend st)) a) in Hf.
      rewrite <- E in Hf; change (view (base st) (pend st) outs) with img in Hf; rewrite Hp in Hf.
      apply negb_true_iff, Nat.eqb_neq in Hf; auto. }
    destruct r.
    + destruct (set_block_ok D img sb blk Erased) as [S HW]; try discriminate; [apply G | apply F; discriminate |].
      split; auto; split; auto; intros w _; auto.
    + split; [apply G|]; split; [apply same_hiding_refl | tauto].
    + destruct (set_block_ok D img sb blk Torn) as [S HW]; try discriminate; [apply G | apply F; discriminate |].
      split; auto; split; auto; intros w _; auto.
Qed.

(** ** Two stores: an entry, a record *)

Definition both (r r' : outcome) : bool :=
  match r, r' with Whole, Whole => true | _, _ => false end.

(** The two words of an entry that names a page in place, into a free slot. *)
Lemma entry_result : forall st outs l n a s names n0 c r r', Within st outs outs ->
  Sound D (old_image st outs) -> data_at D (image_now st) a = Some (names, n0, c) ->
  is_free_slot D (image_now st) s = true ->
  (r <> Absent \/ r' <> Absent -> forall j, In j (place_waits (pend st) a ++ slot_waits (pend st) s) -> landed outs j) ->
  r <> TornUp -> r' <> TornUp ->
  let img := old_image st outs in
  let img' := land (land img (Store (EntA s) (Place n a (life (image_now st) (sb_of a)))) r)
                   (Store (EntB s) (Name l)) r' in
  Sound D img' /\ same_hiding img img' /\
  (forall w, Wit D img' w <-> Wit D img w \/ (both r r' = true /\ w = W l n c)).
Proof.
  intros st outs l n a s names n0 c r r' Hw Sd Hd Hs L T T' img img'.
  unfold is_free_slot in Hs; rewrite on in Hs; simpl in Hs; rewrite !andb_true_iff, Nat.ltb_lt in Hs.
  destruct Hs as (Hlt & HA & HB); apply is_zero_spec in HA, HB.
  assert (F : r <> Absent \/ r' <> Absent -> words img (EntA s) = Zero /\ words img (EntB s) = Zero /\
    exists i, cells img a = Page (Data names n0 i c) /\ place img (sb_of a) i /\ i = life (image_now st) (sb_of a)).
  { intros N; specialize (L N); split; [|split].
    - unfold img; rewrite word_in_cut; auto; intros j Hj; apply L; unfold slot_waits; rewrite !in_app_iff; auto.
    - unfold img; rewrite word_in_cut; auto; intros j Hj; apply L; unfold slot_waits; rewrite !in_app_iff; auto.
    - apply data_in_cut; auto; intros j Hj; apply L; rewrite in_app_iff; auto. }
  assert (Hh : same_hiding img img').
  { intros w Hx; unfold img'; destruct r, r'; try tauto; simpl; auto;
      repeat match goal with |- context [loc_dec ?x ?y] => destruct (loc_dec x y); subst; try discriminate end; auto. }
  destruct r, r'; try tauto.
  - destruct F as (FA & FB & i & Fc & Fp & Fi); [left; discriminate|].
    set (i0 := life (image_now st) (sb_of a)) in *; subst i.
    destruct (store_place_ok D img s n a i0 names n0 c Sd FA FB Fc Fp) as [S1 W1].
    destruct (store_name_ok D (set_word (EntA s) (Place n a i0) img) s l S1 Hlt) as [S2 W2].
    { simpl; destruct (loc_dec (EntB s) (EntA s)); congruence. }
    split; auto; split; auto; intros w.
    change img' with (set_word (EntB s) (Name l) (set_word (EntA s) (Place n a i0) img)).
    rewrite W2, W1; split; (intros [H | H]; [auto|right]).
    + destruct H as (n1 & a1 & i1 & ns1 & n1' & i1' & c1 & E1 & _ & E2 & _ & ->); simpl in E1, E2.
      destruct (loc_dec (EntA s) (EntA s)); [|congruence]; injection E1 as <- <- <-.
      rewrite Fc in E2; injection E2 as _ _ _ <-; auto.
    + destruct H as [_ ->]; exists n, a, i0, names, n0, i0, c; simpl.
      destruct (loc_dec (EntA s) (EntA s)); [|congruence].
      destruct Fp as [Fp1 Fp2]; repeat split; auto.
  - destruct F as (FA & FB & i & Fc & Fp & Fi); [left; discriminate|].
    set (i0 := life (image_now st) (sb_of a)) in *; subst i.
    destruct (store_place_ok D img s n a i0 names n0 c Sd FA FB Fc Fp) as [S1 W1].
    split; auto; split; auto; intros w; unfold img'; simpl; rewrite W1.
    split; auto; intros [H | [H _]]; [auto | discriminate].
  - destruct F as (FA & FB & _); [right; discriminate|].
    destruct (store_name_ok D img s l Sd Hlt FB) as [S2 W2].
    split; auto; split; auto; intros w; unfold img'; simpl; rewrite W2.
    split; (intros [H | H]; [auto|]); [|destruct H; discriminate].
    destruct H as (n1 & a1 & i1 & ns1 & n1' & i1' & c1 & E1 & _); congruence.
  - unfold img'; simpl; split; auto; split; auto; intros w.
    split; auto; intros [H | [H _]]; [auto | discriminate].
Qed.

Lemma two_hiding : forall st o ws o' ws',
  (forall img, same_hiding img (land img o Whole)) -> (forall img, same_hiding img (land img o' Whole)) ->
  same_hiding (image_now st) (now (base st) (issue o' ws' (issue o ws (pend st)))).
Proof.
  intros st o ws o' ws' H H' w Hw; rewrite !now_issue, H', H; auto.
Qed.

Lemma not_torn : forall r o, (r = TornUp -> is_store o = false) -> is_store o = true -> r <> TornUp.
Proof. intros r o H E ->; rewrite H in E; [discriminate | auto]. Qed.

Lemma step_remap : forall st m l src c a s extra st', Inv D st ->
  step D st (Remap m l src c a s) extra = Some st' -> Inv D st'.
Proof.
  intros st m l src c a s extra st' I H; simpl in H.
  destruct (number D st m [l]) as [[n ws]|] eqn:Hn; [|discriminate].
  destruct (data_at D (image_now st) a) as [[[names n0] c']|] eqn:Hd; [|discriminate].
  apply check_spec in H as [Hf H]; injection H as <-; rewrite !andb_true_iff in Hf.
  destruct Hf as [[Ec _] Hs]; apply Nat.eqb_eq in Ec; subst c'.
  eapply (inv_witness D on) with (multi := false) (after := fun _ => None) (c := c)
    (needs := [length (pend st); S (length (pend st))]); eauto using extends_two.
  - intros _ x y [<-|[]] [<-|[]]; auto.
  - intros j [<-|[<-|[]]]; rewrite !length_issue; lia.
  - apply two_hiding; intros; apply store_hiding; auto.
  - intros outs' Hc.
    destruct (within_two _ _ _ _ _ _ I Hc) as (outs & r & r' & -> & Ln & Hw & Hv & Hws & Hws' & T & T' & A).
    exists outs, (both r r'); split; auto; split; [|split].
    + destruct r; try discriminate; intros _ j Hj; apply Hws; [discriminate| |eapply number_lt; eauto].
      rewrite !in_app_iff; auto.
    + rewrite A; destruct r, r'; simpl; intuition discriminate.
    + intros img img' G; unfold img'; rewrite Hv.
      destruct (entry_result st outs l n a s names n0 c r r') as (S & Hh & HW);
        eauto using within_self, not_torn.
      * apply G.
      * intros Nr j Hj; assert (Hlt : j < length (pend st)).
        { apply in_app_or in Hj as [Hj|Hj]; [eapply place_waits_lt | eapply slot_waits_lt]; eauto. }
        assert (Hin : In j (extra ++ ws ++ if_on D EntryAfterPage (place_waits (pend st) a)
                            ++ if_on D SegmentZeroed (slot_waits (pend st) s))).
        { unfold if_on; rewrite !on, !in_app_iff; apply in_app_or in Hj as [Hj|Hj]; auto. }
        destruct Nr as [Nr|Nr]; [apply Hws | apply Hws']; auto.
      * split; auto; split; auto; intros w; rewrite HW; split; (intros [Hx|[Hx1 Hx2]]; [auto|right; split; auto]).
        -- exists l; simpl; auto.
        -- destruct Hx2 as (l' & [<-|[]] & ->); auto.
Qed.

Lemma step_reenter : forall st l n a s extra st', Inv D st ->
  step D st (Reenter l n a s) extra = Some st' -> Inv D st'.
Proof.
  intros st l n a s extra st' I H; simpl in H.
  destruct (data_at D (image_now st) a) as [[[names n0] c]|] eqn:Hd; [|discriminate].
  apply check_spec in H as [Hf H]; injection H as <-; apply andb_prop in Hf as [Hs Hvis].
  apply (inv_again D on) with (ls := [l]) (n := n) (c := c) (own := false); eauto using extends_two.
  - simpl; rewrite Hvis; auto.
  - apply two_hiding; intros; apply store_hiding; auto.
  - intros outs' Hc.
    destruct (within_two _ _ _ _ _ _ I Hc) as (outs & r & r' & -> & Ln & Hw & Hv & Hws & Hws' & T & T' & A).
    exists outs, (both r r'); split; auto; split.
    + destruct r; try discriminate; intros _ _ j Hj; apply Hws; [discriminate| |].
      * unfold if_on; rewrite !on, !in_app_iff; auto.
      * unfold ends in Hj; apply in_flat_map in Hj as (cl & Hcl & Hj); apply filter_In in Hcl as [Hcl _].
        eapply (i_claims _ _ I); eauto.
    + intros img img' G; split; [discriminate|]; unfold img'; rewrite Hv.
      destruct (entry_result st outs l n a s names n0 c r r') as (S & Hh & HW);
        eauto using within_self, not_torn.
      * apply G.
      * intros Nr j Hj; assert (Hlt : j < length (pend st)).
        { apply in_app_or in Hj as [Hj|Hj]; [eapply place_waits_lt | eapply slot_waits_lt]; eauto. }
        assert (Hin : In j (extra ++ if_on D EntryAfterPage (place_waits (pend st) a)
                            ++ if_on D SegmentZeroed (slot_waits (pend st) s)
                            ++ if_on D FenceAfterCommit (ends (claims st) n))).
        { unfold if_on; rewrite !on, !in_app_iff; apply in_app_or in Hj as [Hj|Hj]; auto. }
        destruct Nr as [Nr|Nr]; [apply Hws | apply Hws']; auto.
      * split; auto; split; auto; intros w; rewrite HW; simpl.
        split; (intros [Hx | [Hb Hx]]; [auto | right; split; auto]); [eauto | destruct Hx as (l' & [<- | []] & Hx); auto].
Qed.

Lemma step_deallocate : forall st m f len s after extra st', Inv D st ->
  step D st (Deallocate m f len s after) extra = Some st' -> Inv D st'.
Proof.
  intros st m f len s after extra st' I H; simpl in H.
  destruct (number D st m (seq f len)) as [[n ws]|] eqn:Hn; [|discriminate].
  apply check_spec in H as [Hf H]; rewrite on in H; injection H as <-; rewrite !andb_true_iff, Nat.ltb_lt in Hf.
  destruct Hf as [[[Hlt HA] HB] _]; apply is_zero_spec in HA, HB.
  eapply (inv_witness D on) with (multi := true) (after := fun _ => after) (c := 0)
    (needs := [length (pend st); S (length (pend st))]); eauto using extends_two.
  - discriminate.
  - intros j [<-|[<-|[]]]; rewrite !length_issue; lia.
  - apply two_hiding; intros; apply store_hiding; auto.
  - intros outs' Hc.
    destruct (within_two _ _ _ _ _ _ I Hc) as (outs & r & r' & -> & Ln & Hw & Hv & Hws & Hws' & T & T' & A).
    exists outs, (both r r'); split; auto; split; [|split].
    + destruct r; try discriminate; intros _ j Hj; apply Hws; [discriminate| |eapply number_lt; eauto].
      rewrite !in_app_iff; auto.
    + rewrite A; destruct r, r'; simpl; intuition discriminate.
    + intros img img' G; unfold img'; rewrite Hv; clear img'; fold img.
      assert (Sd : Sound D img) by apply G.
      assert (F : r <> Absent \/ r' <> Absent -> words img (DeaA s) = Zero /\ words img (DeaB s) = Zero).
      { intros N.
        assert (L : forall w, w = DeaA s \/ w = DeaB s ->
                    forall j, In j (touching (KWord w) (pend st)) -> landed outs j).
        { intros w Hwd j Hj.
          assert (Hin : In j (extra ++ ws ++ touching (KWord (DeaA s)) (pend st)
                              ++ touching (KWord (DeaB s)) (pend st)
                              ++ if_on D GatheredFirst (needs_of (claims st) after))).
          { rewrite !in_app_iff; destruct Hwd as [-> | ->]; auto. }
          destruct N as [N|N]; [apply Hws | apply Hws']; auto; eapply touching_lt; eauto. }
        unfold img; rewrite !word_in_cut; eauto using within_self. }
      assert (N1 : r <> TornUp) by (eapply not_torn; eauto).
      assert (N2 : r' <> TornUp) by (eapply not_torn; eauto).
      split; [|split].
      * destruct r, r'; try tauto; simpl.
        -- destruct F as [FA FB]; [left; discriminate|].
           destruct (store_record_ok D img s n Sd FB FA) as [S1 W1].
           apply store_range_ok; auto; simpl; destruct (loc_dec (DeaB s) (DeaA s)); congruence.
        -- destruct F as [FA FB]; [left; discriminate|]; apply store_record_ok; auto.
        -- destruct F as [FA FB]; [right; discriminate|]; apply store_range_ok; auto.
      * intros w Hx; destruct r, r'; try tauto; simpl; auto;
          repeat match goal with |- context [loc_dec ?x ?y] => destruct (loc_dec x y); subst; try discriminate end; auto.
      * intros w; destruct r, r'; try tauto; simpl.
        -- destruct F as [FA FB]; [left; discriminate|].
           destruct (store_record_ok D img s n Sd FB FA) as [S1 W1].
           destruct (store_range_ok D (set_word (DeaA s) (Num n) img) s f len S1 Hlt) as [S2 W2].
           { simpl; destruct (loc_dec (DeaB s) (DeaA s)); congruence. }
           rewrite W2, W1; split; (intros [Hx|Hx]; [auto|right]).
           ++ destruct Hx as (n1 & l & E & Hl & ->); simpl in E.
              destruct (loc_dec (DeaA s) (DeaA s)); [|congruence]; injection E as <-; eauto.
           ++ destruct Hx as (_ & l & Hl & ->); exists n, l; simpl.
              destruct (loc_dec (DeaA s) (DeaA s)); [auto | congruence].
        -- destruct F as [FA FB]; [left; discriminate|].
           destruct (store_record_ok D img s n Sd FB FA) as [S1 W1]; rewrite W1.
           split; auto; intros [Hx | [Hx _]]; [auto | discriminate].
        -- destruct F as [FA FB]; [right; discriminate|].
           destruct (store_range_ok D img s f len Sd Hlt FB) as [S2 W2]; rewrite W2.
           split; (intros [Hx|Hx]; [auto|]); [|destruct Hx; discriminate].
           destruct Hx as (n1 & l & E & _); congruence.
        -- split; auto; intros [Hx | [Hx _]]; [auto | discriminate].
Qed.

End StepsAdd.
