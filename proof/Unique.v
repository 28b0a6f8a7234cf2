(** * A number and an LPN have one content

    Idea. "Reads as the acknowledged content" needs that two claims of one LPN
    with one number agree. A new number is larger than all before; within a
    command of several pages an LPN occurs once. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds
  StepsAdd StepsKill StepsNumber StepsWorld Theorems.

Definition agreeing (cs : list claim) : Prop := forall a b, In a cs -> In b cs ->
  c_lpn a = c_lpn b -> c_num a = c_num b -> c_content a = c_content b.

Definition Unique (st : state) : Prop := agreeing (claims st) /\ agreeing (drafts st).

Section Unique.
Variable D : device.
Hypothesis on : sound_device D.

Lemma agreeing_app : forall xs ys, agreeing xs -> agreeing ys ->
  (forall a b, In a xs -> In b ys -> c_lpn a = c_lpn b -> c_num a = c_num b -> False) ->
  agreeing (xs ++ ys).
Proof.
  intros xs ys Hx Hy Hd a b Ha Hb El En; apply in_app_or in Ha as [Ha | Ha]; apply in_app_or in Hb as [Hb | Hb].
  - apply Hx; auto.
  - exfalso; eauto.
  - exfalso; eapply (Hd b a); eauto.
  - apply Hy; auto.
Qed.

Lemma number_new : forall st m ls n ws d, number D st m ls = Some (n, ws) ->
  m <> None -> In d (drafts st) -> c_num d = n -> ~ In (c_lpn d) ls.
Proof.
  unfold number; intros st [n'|] ls n ws d H Nm Hd En; [|congruence].
  destruct (word_of st n'); [|discriminate].
  match type of H with context [existsb ?f ?l] => destruct (existsb f l) eqn:E end; [discriminate|].
  injection H as <- _; intros Hl; apply not_true_iff_false in E; apply E, existsb_exists; exists d; split; auto.
  rewrite En, Nat.eqb_refl; apply mem_in; auto.
Qed.

(** New claims of one content, for LPNs of the command. *)
Lemma unique_put : forall st p m ls n ws cs c, Inv D st -> Unique st ->
  number D st m ls = Some (n, ws) ->
  (forall cl, In cl cs -> In (c_lpn cl) ls /\ c_num cl = n /\ c_content cl = c) ->
  Unique (put_claims (put_pend st p) m cs).
Proof.
  intros st p m ls n ws cs c I [U1 U2] Hn Hcs.
  assert (A : agreeing cs).
  { intros a b Ha Hb _ _; apply Hcs in Ha, Hb; destruct Ha as (_ & _ & ->), Hb as (_ & _ & ->); auto. }
  pose proof (number_spec D on _ _ _ _ _ Hn) as Hs; destruct m; split; simpl; auto; apply agreeing_app; auto.
  - intros a b Ha Hb El En; apply Hcs in Hb as (H1 & H2 & _).
    eapply number_new; eauto; [discriminate | congruence | rewrite El; auto].
  - intros a b Ha Hb El En; apply Hcs in Hb as (H1 & H2 & _).
    apply (i_claims _ _ I) in Ha; lia.
Qed.

Lemma unique_step : forall st act extra st', Inv D st -> Unique st ->
  step D st act extra = Some st' -> Unique st'.
Proof.
  intros st act extra st' I U H.
  assert (Same : claims st' = claims st -> drafts st' = drafts st -> Unique st').
  { unfold Unique; intros -> ->; auto. }
  destruct act; simpl in H;
    repeat match goal with
    | H : check _ _ = Some _ |- _ => apply check_spec in H as [? H]
    | H : context [match number D st ?m ?ls with _ => _ end] |- _ => destruct (number D st m ls) as [[? ?]|] eqn:Hn; [|discriminate]
    | H : context [match data_at D ?i ?a with _ => _ end] |- _ => destruct (data_at D i a) as [[[? ?] ?]|]; [|discriminate]
    | H : context [match word_of st ?n with _ => _ end] |- _ => destruct (word_of st n) eqn:Hw; [|discriminate]
    | H : context [match zero_guard ?w with _ => _ end] |- _ => destruct (zero_guard w); [|discriminate]
    | H : context [match nth_error ?p ?i with _ => _ end] |- _ => destruct (nth_error p i); [|discriminate]
    | H : context [match words ?i ?w with _ => _ end] |- _ => destruct (words i w); try discriminate
    | H : context [if has D ?g then _ else _] |- _ => rewrite (on g) in H
    end; try (injection H as <-; apply Same; reflexivity).
  - injection H as <-; eapply unique_put; eauto; intros cl0 [<- | []]; simpl; auto.
  - injection H as <-; eapply unique_put; eauto; intros cl0 [<- | []]; simpl; auto.
  - injection H as <-; eapply unique_put with (c := 0); eauto.
    intros cl Hcl; apply in_map_iff in Hcl as (l0 & <- & Hl); simpl; eauto.
  - injection H as <-; destruct U as [U1 U2].
    assert (Hr := word_of_spec _ _ _ Hw); split; simpl.
    + apply agreeing_app; auto.
      * intros a b Ha Hb El En; apply in_map_iff in Ha as (d & <- & Ha); apply in_map_iff in Hb as (d' & <- & Hb).
        simpl in *; apply filter_In in Ha as [Ha E1]; apply filter_In in Hb as [Hb E2].
        apply Nat.eqb_eq in E1, E2; apply U2; auto; congruence.
      * intros a b Ha Hb El En; apply in_map_iff in Hb as (d & <- & Hb); simpl in *.
        apply (i_claims _ _ I) in Ha as (_ & _ & H & _); rewrite En in H; eapply H; eauto.
    + intros a b Ha Hb; apply filter_In in Ha as [Ha _]; apply filter_In in Hb as [Hb _]; apply U2; auto.
  - injection H as <-; destruct U as [U1 U2]; split; simpl; auto.
    intros a b Ha Hb; apply filter_In in Ha as [Ha _]; apply filter_In in Hb as [Hb _]; apply U2; auto.
  - injection H as <-.
    match goal with |- Unique (State _ _ _ _ _ _ (_ ++ ?cs) _ _) =>
      change (Unique (put_claims (put_pend st (pend st)) None cs)) end.
    apply unique_put with (ls := ls) (n := S (clock st)) (ws := []) (c := c); auto.
    intros cl Hcl; apply in_map_iff in Hcl as (l0 & <- & Hl); simpl; auto.
  - injection H as <-; destruct U as [U1 _]; split; simpl; [|easy].
    intros a b Ha Hb El En; apply in_flat_map in Ha as (a0 & Ha0 & Ha); apply in_flat_map in Hb as (b0 & Hb0 & Hb).
    match type of Ha with context [if ?t then _ else _] => destruct t; [|easy] end.
    match type of Hb with context [if ?t then _ else _] => destruct t; [|easy] end.
    destruct Ha as [<- | []], Hb as [<- | []]; simpl in *; apply U1; auto.
Qed.

Lemma unique_run : forall acts st st', Inv D st -> Unique st -> run D st acts = Some st' -> Unique st'.
Proof.
  induction acts as [|[a e] acts IH]; simpl; intros st st' I U H.
  - injection H as <-; auto.
  - destruct (step D st a e) as [st1|] eqn:E; [|discriminate].
    eapply IH; [eapply step_inv; eauto | eapply unique_step; eauto | auto].
Qed.

End Unique.

(** If no later command shows, the LPN reads as the acknowledged content. *)
Theorem acknowledged_content_stays : forall D st outs cl, sound_device D -> reachable D st ->
  may_cut (pend st) outs = true -> In cl (claims st) -> c_num cl = floor st (c_lpn cl) ->
  let img := after_cut st outs in
  newest D img (c_lpn cl) = c_num cl -> c_num cl <> 0 ->
  read D img (c_lpn cl) = c_content cl.
Proof.
  intros D st outs cl on R Hc Hcl _ img En Nz; pose proof (reachable_inv D on _ R) as I.
  assert (U : Unique st).
  { destruct R as (acts & R); apply (unique_run D on acts init st); auto; [apply inv_init | split; intros a b []]. }
  destruct (every_cut_reads_right D st outs on R Hc (c_lpn cl)) as [_ [[H1 _] | (cl' & H1 & H2 & H3 & H4)]].
  - unfold img in En; congruence.
  - unfold img in *; rewrite <- H4; apply (proj1 U); auto; congruence.
Qed.
