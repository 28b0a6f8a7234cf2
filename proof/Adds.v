(** * Steps that add witnesses, or none

    Idea. A host's write, remap or deallocation, and the firmware's restatement,
    add witnesses with a new number or with that of a command in progress
    ([inv_witness]). A copy by collection and an entry stored again add witnesses
    with an old number ([inv_again]). A head, and the erase of a dead block, add
    none ([inv_none]). Each lemma has the same premise: for every cut, what the
    cut has of the new operations leaves the image as stated.

    The waits appear here as "has landed in the cut", and nowhere else. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant.

Section Adds.
Variable D : device.
Hypothesis on : forall g, has D g = true.

(** [p'] extends the pending operations of [st]. *)
Record Extends (st : state) (p' : list pending) : Prop := {
  e_wf : wf p';
  e_len : length (pend st) <= length p';
  e_durable : forall needs, all_durable (pend st) needs = true -> all_durable p' needs = true
}.

Lemma extends_one : forall st o ws, Inv D st -> Extends st (issue o ws (pend st)).
Proof.
  intros st o ws I; split; [apply wf_issue, i_wf with D; auto | rewrite length_issue; lia |].
  intros; apply all_durable_issue; auto.
Qed.

Lemma extends_two : forall st o ws o' ws', Inv D st ->
  Extends st (issue o' ws' (issue o ws (pend st))).
Proof.
  intros st o ws o' ws' I; split.
  - apply wf_issue, wf_issue, i_wf with D; auto.
  - rewrite !length_issue; lia.
  - intros; apply all_durable_issue, all_durable_issue; auto.
Qed.

(** A cut of the extended list contains a cut of the old one. *)
Definition Within (st : state) (outs outs' : list outcome) : Prop :=
  may_cut (pend st) outs = true /\
  forall j, j < length (pend st) -> (landed outs' j <-> landed outs j).

Definition old_image (st : state) (outs : list outcome) : image := view (base st) (pend st) outs.

Lemma hid_bound : forall st outs img n, Inv D st -> Good D st outs img -> Hid D img n ->
  n <= clock st.
Proof.
  intros st outs img n I G (k & Hk & [H | H]).
  - destruct (g_open _ _ _ _ G _ _ Hk H) as [H' | H'].
    + eapply i_gone; eauto.
    + eapply i_opened; eauto.
  - eapply i_gone; eauto. eapply g_abort; eauto.
Qed.

Lemma word_of_spec : forall st n k, word_of st n = Some k -> In (n, k) (running st).
Proof.
  unfold word_of; intros st n k H; destruct (find (fun r => fst r =? n) (running st)) as [[n' k']|] eqn:E; [|discriminate].
  injection H as <-; apply find_some in E as [H E]; simpl in E; apply Nat.eqb_eq in E; subst; auto.
Qed.

Lemma number_spec : forall st m ls n ws, number D st m ls = Some (n, ws) ->
  match m with
  | None => n = S (clock st)
  | Some n' => n' = n /\ exists k, In (n, k) (running st) /\ ws = touching (KWord (OpenW k)) (pend st)
  end.
Proof.
  unfold number; intros st [n'|] ls n ws H.
  - destruct (word_of st n') as [k|] eqn:E; [|discriminate].
    match type of H with context [existsb ?f ?x] => destruct (existsb f x); [discriminate|] end.
    injection H as <- <-.
    split; auto; exists k; split; [apply word_of_spec; auto | unfold if_on; rewrite on; auto].
  - injection H as <- <-; auto.
Qed.

(** The word of a running command says so in every cut that has all stores to it. *)
Lemma running_hidden : forall st outs n k, Inv D st -> may_cut (pend st) outs = true ->
  In (n, k) (running st) ->
  (forall j, In j (touching (KWord (OpenW k)) (pend st)) -> landed outs j) ->
  Hid D (old_image st outs) n.
Proof.
  intros st outs n k I H R L; destruct (i_running _ _ I _ _ R) as (_ & Hw & Hk).
  exists k; split; auto; left; unfold old_image; rewrite agree_word; auto.
  apply may_cut_length; auto.
Qed.

Lemma inv_witness : forall st m ls n ws c needs multi after p' cs,
  Inv D st -> number D st m ls = Some (n, ws) -> Extends st p' ->
  cs = map (fun l => Claim l n c needs multi (after l)) ls ->
  (multi = false -> forall l l', In l ls -> In l' ls -> l' = l) ->
  (forall j, In j needs -> j < length p') ->
  same_hiding (image_now st) (now (base st) p') ->
  (forall outs', may_cut p' outs' = true -> exists outs b, Within st outs outs' /\
     (b = true -> forall j, In j ws -> landed outs j) /\
     (all_landed_in outs' needs <-> b = true) /\
     let img := old_image st outs in let img' := view (base st) p' outs' in
     (Good D st outs img -> Sound D img' /\ same_hiding img img' /\
      (forall w, Wit D img' w <-> Wit D img w \/ (b = true /\ exists l, In l ls /\ w = W l n c)))) ->
  Inv D (put_claims (put_pend st p') m cs).
Proof.
  intros st m ls n ws c needs multi after p' cs I Hnum X Ecs Hmulti Hneeds Hnow Hcut.
  apply number_spec in Hnum.
  set (st' := put_claims (put_pend st p') m cs).
  assert (F : base st' = base st /\ pend st' = p' /\ running st' = running st /\ opened st' = opened st
            /\ gone st' = gone st /\ floor st' = floor st) by (destruct m; simpl; auto 6).
  destruct F as (Fb & Fp & Fr & Fo & Fg & Ff).
  assert (Fc : clock st <= clock st' /\ n <= clock st' /\
    claims st' = claims st ++ (match m with None => cs | _ => [] end) /\
    drafts st' = drafts st ++ (match m with None => [] | _ => cs end) /\
    (m = None -> n = S (clock st))).
  { destruct m; simpl; rewrite ?app_nil_r.
    - destruct Hnum as [-> (k & R & _)].
      repeat split; auto; try discriminate. eapply i_opened; eauto; eapply i_running; eauto.
    - subst n; repeat split; auto; lia. }
  destruct Fc as (Ft & Fn & Fcl & Fd & Fm).
  assert (Hcs : forall cl, In cl cs -> In (c_lpn cl) ls /\ c_num cl = n /\ c_content cl = c /\
                c_needs cl = needs /\ c_multi cl = multi).
  { subst cs; intros cl H; apply in_map_iff in H as (l & <- & H); simpl; auto. }
  assert (Hin : forall l, In l ls -> exists cl, In cl cs /\ c_lpn cl = l /\ c_num cl = n /\ c_content cl = c).
  { subst cs; intros l H; eexists; split; [apply in_map_iff; eauto | simpl; auto]. }
  split.
  - rewrite Fp; apply e_wf with st; auto.
  - rewrite Fb, Fp; intros outs' H.
    destruct (Hcut _ H) as (outs & b & (Hc & Hl) & Hws & Hb & Himg).
    pose proof (i_cuts _ _ I _ Hc) as G; fold (old_image st outs) in G; simpl in Himg.
    destruct (Himg G) as (S & Hh & HW).
    eapply (good_add D on st st' outs outs' _ _ _ _
      (fun w => b = true /\ exists l, In l ls /\ w = W l n c) G Hl); eauto.
    + intros cl Hcl; apply i_claims with D; auto.
    + intros d Hd; apply (i_drafts D _ I d Hd).
    + intros cl Hcl; destruct m; [easy|]; apply Hcs in Hcl; rewrite (Fm eq_refl) in Hcl; lia.
    + intros cl Hcl Hn; destruct m; [easy|]; apply Hcs in Hcl as (H1 & H2 & H3 & H4 & _).
      rewrite H4 in Hn; apply Hb in Hn; rewrite H2, H3; split; [split; eauto|].
      intros Hid; eapply hid_bound in Hid; eauto; rewrite (Fm eq_refl) in Hid; lia.
    + intros d Hd Hn; destruct m; [|easy]; apply Hcs in Hd as (H1 & H2 & H3 & H4 & _).
      rewrite H4 in Hn; apply Hb in Hn; rewrite H2, H3; split; eauto.
    + intros l' n' c' (Hb1 & l & Hll & E); injection E as -> -> ->; split; auto; split.
      * intros Nh; destruct m as [m|].
        -- exfalso; apply Nh; destruct Hnum as [_ (k & R & ->)].
           eapply running_hidden; eauto.
        -- split; [|split].
           ++ destruct (Hin l Hll) as (cl & Hcl & E); exists cl; rewrite Fcl, in_app_iff; auto.
           ++ intros cl Hcl En; rewrite Fcl, in_app_iff in Hcl; destruct Hcl as [Hcl | Hcl].
              ** apply (i_claims _ _ I) in Hcl; rewrite (Fm eq_refl) in En; lia.
              ** left; split; auto; apply Hcs in Hcl as (H1 & _); eauto.
           ++ intros cl Hcl En _; rewrite Fcl, in_app_iff in Hcl; destruct Hcl as [Hcl | Hcl].
              ** apply (i_claims _ _ I) in Hcl; rewrite (Fm eq_refl) in En; lia.
              ** apply Hcs in Hcl as (_ & _ & _ & -> & _); apply Hb; auto.
      * intros k R; destruct m as [m|].
        -- destruct (Hin l Hll) as (d & Hd & E); exists d; rewrite Fd, in_app_iff; auto.
        -- exfalso; apply (i_running _ _ I) in R as (R & _).
           apply (i_opened _ _ I) in R; rewrite (Fm eq_refl) in R; lia.
  - intros cl Hcl; rewrite Fcl, in_app_iff in Hcl; rewrite Fg, Fr, Fp; destruct Hcl as [Hcl | Hcl].
    + destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto; [lia|].
      intros j Hj; apply Nat.lt_le_trans with (length (pend st)); auto; apply e_len; auto.
    + destruct m as [|]; [easy|]; apply Hcs in Hcl as (_ & -> & _ & -> & _); repeat split; auto.
      * intros Hg; apply (i_gone _ _ I) in Hg; rewrite (Fm eq_refl) in Hg; lia.
      * intros k R; apply (i_running _ _ I) in R as (R & _).
        apply (i_opened _ _ I) in R; rewrite (Fm eq_refl) in R; lia.
  - intros d Hd; rewrite Fd, in_app_iff in Hd; rewrite Fr, Fp; destruct Hd as [Hd | Hd].
    + destruct (i_drafts _ _ I _ Hd) as (H1 & H2); split; auto.
      intros j Hj; apply Nat.lt_le_trans with (length (pend st)); auto; apply e_len; auto.
    + destruct m as [m|]; [|easy]; apply Hcs in Hd as (_ & -> & _ & -> & _); split; auto.
      destruct Hnum as [_ (k & R & _)]; eauto.
  - intros n' k R; rewrite Fr in R; rewrite Fo; unfold image_now; rewrite Fb, Fp, Hnow by auto.
    apply (i_running _ _ I); auto.
  - intros n' k; rewrite Fo, Fg; intros R; destruct (i_opened _ _ I _ _ R) as (H1 & H2 & H3).
    repeat split; auto; lia.
  - intros n'; rewrite Fg; intros H; apply (i_gone _ _ I) in H; lia.
  - intros l; rewrite Ff, Fp; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; rewrite Fcl, in_app_iff; repeat split; auto; apply e_durable with st; auto.
  - intros cl cl'; rewrite Fcl, !in_app_iff; intros [H | H] [H' | H'] E.
    + eapply (i_multi _ _ I); eauto.
    + destruct m; [easy|]; apply Hcs in H'; apply (i_claims _ _ I) in H; rewrite (Fm eq_refl) in H'; lia.
    + destruct m; [easy|]; apply Hcs in H; apply (i_claims _ _ I) in H'; rewrite (Fm eq_refl) in H; lia.
    + destruct m; [easy|]; apply Hcs in H as (H1 & _ & _ & _ & ->).
      apply Hcs in H' as (H1' & _ & _ & _ & ->); split; auto.
Qed.

(** Operations that leave all ghosts alone. *)
Lemma inv_put : forall st p', Inv D st -> Extends st p' ->
  same_hiding (image_now st) (now (base st) p') ->
  (forall outs', may_cut p' outs' = true -> exists outs, Within st outs outs' /\
     (Good D st outs (old_image st outs) -> Good D (put_pend st p') outs' (view (base st) p' outs'))) ->
  Inv D (put_pend st p').
Proof.
  intros st p' I X Hnow Hcut; split; simpl.
  - apply e_wf with st; auto.
  - intros outs' H; destruct (Hcut _ H) as (outs & (Hc & _) & HG).
    apply HG, (i_cuts _ _ I _ Hc).
  - intros cl Hcl; destruct (i_claims _ _ I _ Hcl) as (H1 & H2 & H3 & H4); repeat split; auto.
    intros j Hj; apply Nat.lt_le_trans with (length (pend st)); auto; apply e_len; auto.
  - intros d Hd; destruct (i_drafts _ _ I _ Hd) as (H1 & H2); split; auto.
    intros j Hj; apply Nat.lt_le_trans with (length (pend st)); auto; apply e_len; auto.
  - intros n k R; unfold image_now; simpl; rewrite Hnow by auto; apply (i_running _ _ I); auto.
  - apply (i_opened _ _ I).
  - apply (i_gone _ _ I).
  - intros l; destruct (i_floor _ _ I l) as [H | (cl & H1 & H2 & H3 & H4)]; auto.
    right; exists cl; repeat split; auto; apply e_durable with st; auto.
  - apply (i_multi _ _ I).
Qed.

(** What the ends of a command wait for, in terms of claims. *)
Lemma ends_landed : forall st outs n, (forall j, In j (ends (claims st) n) -> landed outs j) ->
  forall cl, In cl (claims st) -> c_num cl = n -> c_multi cl = true -> all_landed_in outs (c_needs cl).
Proof.
  intros st outs n H cl Hcl En Em j Hj; apply H; unfold ends; apply in_flat_map; exists cl.
  split; auto; apply filter_In; split; auto; rewrite Em, En, Nat.eqb_refl; auto.
Qed.

Lemma is_visible_spec : forall img l n c, is_visible D img l n c = true ->
  Wit D img (W l n c) /\ ~ Hid D img n.
Proof.
  unfold is_visible; intros img l n c H; apply existsb_exists in H as ([l' n' c'] & H & E).
  simpl in E; rewrite !andb_true_iff, !Nat.eqb_eq in E; destruct E as [[-> ->] ->].
  apply (visible_iff D on) in H; auto.
Qed.

(** A witness with the number of a visible one. [own]: the old witness is there in each cut that has the new one. *)
Lemma inv_again : forall st ls n c p' own,
  Inv D st -> Extends st p' -> forallb (fun l => is_visible D (image_now st) l n c) ls = true ->
  same_hiding (image_now st) (now (base st) p') ->
  (forall outs', may_cut p' outs' = true -> exists outs b, Within st outs outs' /\
     (b = true -> own = false -> forall j, In j (ends (claims st) n) -> landed outs j) /\
     let img := old_image st outs in let img' := view (base st) p' outs' in
     (Good D st outs img -> (b = true -> own = true -> forall l, In l ls -> Wit D img (W l n c)) /\
      Sound D img' /\ same_hiding img img' /\
      (forall w, Wit D img' w <-> Wit D img w \/ (b = true /\ exists l, In l ls /\ w = W l n c)))) ->
  Inv D (put_pend st p').
Proof.
  intros st ls n c p' own I X Hvs Hnow Hcut; apply inv_put; auto; rewrite forallb_forall in Hvs.
  intros outs' H; destruct (Hcut _ H) as (outs & b & (Hc & Hl) & Hends & Himg).
  exists outs; split; [split; auto|]; intros G; destruct (Himg G) as (Hown & S & Hh & HW).
  pose proof (good_now D _ I) as Gn.
  eapply (good_add D on st (put_pend st p') outs outs' _ _ [] []
    (fun w => b = true /\ exists l, In l ls /\ w = W l n c) G Hl); simpl; rewrite ?app_nil_r; eauto; try easy.
  - intros cl Hcl; apply i_claims with D; auto.
  - intros d Hd; apply (i_drafts D _ I d Hd).
  - intros l' n' c' (Hb & l & Hls & E); injection E as -> -> ->.
    destruct (is_visible_spec _ _ _ _ (Hvs _ Hls)) as [Hv Hvis].
    destruct (g_truth _ _ _ _ Gn _ _ _ Hv Hvis) as (cl0 & Hcl0 & El & En & Ec).
    destruct (i_claims _ _ I _ Hcl0) as (Hck & _ & Hrun & _).
    split; [lia|]; split; [intros Nh; split; [exists cl0; auto | split]|].
    + intros cl Hcl En'; destruct own.
      * right; eapply (g_whole _ _ _ _ G); eauto.
      * destruct (c_multi cl) eqn:Em.
        -- right; rewrite <- En'; apply (g_dom _ _ _ _ G); auto.
           eapply ends_landed; eauto.
        -- left; split; auto.
           destruct (i_multi _ _ I cl cl0 Hcl Hcl0) as [_ E']; [congruence|].
           exists l; split; auto; rewrite <- E', El; auto.
    + intros cl Hcl En' Em j Hj; apply Hl; [eapply i_claims; eauto|]; destruct own.
      * eapply (g_landed _ _ _ _ G); eauto.
      * eapply ends_landed; eauto.
    + intros k R; exfalso; apply (Hrun k); rewrite En; auto.
Qed.

(** No witness changes. *)
Lemma inv_none : forall st p', Inv D st -> Extends st p' ->
  same_hiding (image_now st) (now (base st) p') ->
  (forall outs', may_cut p' outs' = true -> exists outs, Within st outs outs' /\
     let img := old_image st outs in let img' := view (base st) p' outs' in
     (Good D st outs img -> Sound D img' /\ same_hiding img img' /\
      (forall w, Wit D img' w <-> Wit D img w))) ->
  Inv D (put_pend st p').
Proof.
  intros st p' I X Hnow Hcut; apply inv_put; auto.
  intros outs' H; destruct (Hcut _ H) as (outs & (Hc & Hl) & Himg).
  exists outs; split; [split; auto|]; intros G; destruct (Himg G) as (S & Hh & HW).
  eapply (good_add D on st (put_pend st p') outs outs' _ _ [] [] (fun _ => False) G Hl);
    simpl; rewrite ?app_nil_r; eauto; try easy.
  - intros cl Hcl; apply i_claims with D; auto.
  - intros d Hd; apply (i_drafts D _ I d Hd).
  - intros w; rewrite HW; tauto.
Qed.

End Adds.
