(** * What relies on a command does not show without it

    Idea. A relocation gives the target the source's page and deallocates the
    source. If it is not one command with a word of its own, the record of the
    deallocation waits for what makes the target count. So a cut may leave the
    page in both places, and never in neither. A restatement under a new number
    waits for the command that it states again, or it would show a part of it.

    Invariant ([Ordered]): some operation of the claim waits for each operation of
    the claims that it relies on. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds
  StepsAdd StepsKill StepsNumber StepsWorld Theorems.

(** Some operation among [needs] waits for operation [j]. *)
Definition waited_by (p : list pending) (j : nat) (needs : list nat) : Prop :=
  exists i q, In i needs /\ nth_error p i = Some q /\ In j (waits q).

Definition Ordered (st : state) : Prop := forall cl a, In cl (claims st) -> c_after cl = Some a ->
  c_multi cl = true /\ (exists cl0, In cl0 (claims st) /\ c_num cl0 = a) /\
  forall cl', In cl' (claims st) -> c_num cl' = a ->
    forall j, In j (c_needs cl') -> waited_by (pend st) j (c_needs cl).

Section Reliance.
Variable D : device.
Hypothesis on : sound_device D.

(** The pending operations keep their places and what they wait for. *)
Definition keeps_waits (p p' : list pending) : Prop :=
  forall i q, nth_error p i = Some q -> exists q', nth_error p' i = Some q' /\ waits q' = waits q.

Lemma keeps_issue : forall o ws p, keeps_waits p (issue o ws p).
Proof.
  intros o ws p i q H; exists q; split; auto; unfold issue; rewrite nth_error_app1; auto.
  apply nth_error_Some; congruence.
Qed.

Lemma keeps_trans : forall p p' p'', keeps_waits p p' -> keeps_waits p' p'' -> keeps_waits p p''.
Proof.
  intros p p' p'' H H' i q E; destruct (H i q E) as (q' & E' & W); destruct (H' i q' E') as (q'' & E'' & W').
  exists q''; split; auto; congruence.
Qed.

Lemma keeps_refl : forall p, keeps_waits p p.
Proof. intros p i q H; eauto. Qed.
Lemma keeps_clear : forall waits ws p, keeps_waits p (clear ws waits p).
Proof.
  induction ws as [|w ws IH]; intros p; simpl; [apply keeps_refl|].
  eapply keeps_trans; [apply keeps_issue | apply IH].
Qed.

Lemma keeps_durable : forall p i, keeps_waits p (mark_durable p i).
Proof.
  intros p i j q H; destruct (nth_error p i) as [r|] eqn:E.
  - destruct (mark_durable_split _ _ _ E) as (l1 & l2 & Ep & El & Em); rewrite Em; rewrite Ep in H.
    destruct (Nat.lt_ge_cases j (length l1)).
    + rewrite nth_error_app1 in * by auto; eauto.
    + rewrite nth_error_app2 in * by auto; destruct (j - length l1) as [|d]; simpl in *; eauto.
      injection H as <-; simpl; eauto.
  - assert (A : mark_durable p i = p).
    { unfold mark_durable; rewrite E; apply nth_error_None in E.
      rewrite firstn_all2, skipn_all2 by lia; simpl; apply app_nil_r. }
    rewrite A; eauto.
Qed.

Lemma waited_keeps : forall p p' j needs, keeps_waits p p' -> waited_by p j needs -> waited_by p' j needs.
Proof.
  intros p p' j needs K (i & q & Hi & E & Hj); destruct (K i q E) as (q' & E' & W).
  exists i, q'; rewrite W; auto.
Qed.

Lemma ordered_ext : forall st st' cs, Ordered st -> keeps_waits (pend st) (pend st') ->
  claims st' = claims st ++ cs ->
  (forall c old, In c cs -> In old (claims st) -> c_num c <> c_num old) ->
  (forall c a, In c cs -> c_after c = Some a -> c_multi c = true /\
     (exists old, In old (claims st) /\ c_num old = a) /\
     forall cl', In cl' (claims st) -> c_num cl' = a ->
       forall j, In j (c_needs cl') -> waited_by (pend st') j (c_needs c)) ->
  Ordered st'.
Proof.
  intros st st' cs H K E New Hc cl a Hcl Ha; rewrite E in *.
  assert (Old : forall cl', In cl' (claims st ++ cs) -> (exists old, In old (claims st) /\ c_num old = a) ->
                c_num cl' = a -> In cl' (claims st)).
  { intros cl' Hcl' (old & Ho & Eo) En; apply in_app_or in Hcl' as [Hcl' | Hcl']; auto; exfalso.
    eapply New; eauto; congruence. }
  apply in_app_or in Hcl as [Hcl | Hcl].
  - destruct (H cl a Hcl Ha) as (H1 & (cl0 & H2 & H3) & H4); split; auto; split.
    + exists cl0; rewrite in_app_iff; auto.
    + intros cl' Hcl' En j Hj; apply waited_keeps with (pend st); auto.
      apply (H4 cl'); auto; apply Old; eauto.
  - destruct (Hc cl a Hcl Ha) as (H1 & (cl0 & H2 & H3) & H4); split; auto; split.
    + exists cl0; rewrite in_app_iff; auto.
    + intros cl' Hcl' En j Hj; apply (H4 cl'); auto; apply Old; eauto.
Qed.

Lemma ordered_same : forall st st', Ordered st -> keeps_waits (pend st) (pend st') ->
  claims st' = claims st -> Ordered st'.
Proof.
  intros st st' H K E; apply ordered_ext with (st := st) (cs := []); auto; try easy.
  rewrite app_nil_r; auto.
Qed.

(** New claims without an order, of a new number. *)
Lemma ordered_put : forall st p m ls n ws cs, Inv D st -> Ordered st -> keeps_waits (pend st) p ->
  number D st m ls = Some (n, ws) ->
  (forall c, In c cs -> c_num c = n /\ (m = None -> forall a, c_after c = Some a -> c_multi c = true /\
     (exists old, In old (claims st) /\ c_num old = a) /\
     forall cl', In cl' (claims st) -> c_num cl' = a ->
       forall j, In j (c_needs cl') -> waited_by p j (c_needs c))) ->
  Ordered (put_claims (put_pend st p) m cs).
Proof.
  intros st p m ls n ws cs I H K Hn Hc; pose proof (number_spec D on _ _ _ _ _ Hn) as Hs; destruct m.
  - apply ordered_same with st; auto.
  - apply ordered_ext with (st := st) (cs := cs); auto.
    + intros c old Hcc Ho; apply Hc in Hcc as [-> _]; apply (i_claims _ _ I) in Ho; lia.
    + intros c a Hcc; apply Hc in Hcc as [_ Hcc]; auto.
Qed.

Lemma ordered_step : forall st act extra st', Inv D st -> Ordered st ->
  step D st act extra = Some st' -> Ordered st'.
Proof.
  intros st act extra st' I U H.
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
    end;
    try (injection H as <-; apply ordered_same with st;
         [assumption
         |simpl; first [apply keeps_issue | apply keeps_clear | apply keeps_refl | apply keeps_durable
                       |eapply keeps_trans; apply keeps_issue]
         |reflexivity]).
  - injection H as <-; eapply ordered_put; eauto using keeps_issue.
    intros cl0 [<- | []]; simpl; split; auto; discriminate.
  - injection H as <-; eapply ordered_put; eauto; [eapply keeps_trans; apply keeps_issue|].
    intros cl0 [<- | []]; simpl; split; auto; discriminate.
  - injection H as <-; eapply ordered_put; eauto; [eapply keeps_trans; apply keeps_issue|].
    intros cl0 Hcl; apply in_map_iff in Hcl as (l0 & <- & Hl); simpl; split; auto.
    intros _ a ->; split; auto; apply andb_prop in H0 as [_ H0]; simpl in H0; split.
    + apply existsb_exists in H0 as (old & Ho & E); apply Nat.eqb_eq in E; eauto.
    + intros cl' Hcl' En j Hj; set (ws := extra ++ _).
      exists (length (pend st)); eexists; split; [simpl; auto|]; split.
      * unfold issue at 1; rewrite nth_error_app1 by (rewrite length_issue; lia).
        unfold issue; rewrite nth_error_app2, Nat.sub_diag by lia; simpl; reflexivity.
      * simpl; apply in_or_app; left; apply filter_In; split.
        -- unfold ws, if_on; rewrite on, !in_app_iff; do 4 right; apply in_flat_map.
           exists cl'; split; auto; apply filter_In; split; auto; apply Nat.eqb_eq; auto.
        -- apply Nat.ltb_lt; eapply (i_claims _ _ I); eauto.
  - injection H as <-.
    match goal with |- Ordered (State _ _ _ _ _ _ (_ ++ ?x) _ _) => apply ordered_ext with (st := st) (cs := x) end;
      simpl; auto using keeps_issue.
    + intros c old Hc Ho E; apply in_map_iff in Hc as (d & <- & Hd); simpl in E; subst n.
      apply (i_claims _ _ I) in Ho as (_ & _ & R & _); eapply R; eapply word_of_spec; eauto.
    + intros c a Hc; apply in_map_iff in Hc as (d & <- & Hd); simpl; discriminate.
  - injection H as <-.
    match goal with |- Ordered (State _ ?p _ _ _ _ (_ ++ ?cs) _ _) =>
      change (Ordered (put_claims (put_pend st p) None cs)) end.
    apply ordered_put with (ls := ls) (n := S (clock st)) (ws := []); auto using keeps_issue.
    intros cl0 Hcl; apply in_map_iff in Hcl as (l0 & <- & Hl); simpl; split; auto.
    intros _ m Hm; unfold some in Hm; destruct (Nat.eqb_spec (newest D (image_now st) l0) 0); [discriminate|].
    injection Hm as <-; split; auto; split.
    + destruct (newest_in D on (image_now st) l0) as [Z | (c0 & Hw & Hn)]; [congruence|].
      destruct (g_truth _ _ _ _ (good_now D _ I) _ _ _ Hw Hn) as (cl & Hcl & _ & E & _); eauto.
    + intros cl' Hcl' En j Hj; set (ws := extra ++ _).
      assert (Hlt : j < length (pend st)) by (eapply (i_claims _ _ I); eauto).
      exists (length (pend st)); eexists; split; [simpl; auto|]; split.
      * unfold issue; rewrite nth_error_app2, Nat.sub_diag by lia; simpl; reflexivity.
      * simpl; apply in_or_app; left; apply filter_In; split; [|apply Nat.ltb_lt; auto].
        unfold ws, if_on; rewrite on, !in_app_iff; right; right; apply in_everything; auto.
  - injection H as <-; intros cl a Hcl Ha; simpl in *; exfalso.
    apply in_flat_map in Hcl as (cl0 & _ & Hcl).
    match type of Hcl with context [if ?t then _ else _] => destruct t; [|easy] end.
    destruct Hcl as [<- | []]; discriminate.
Qed.

Lemma ordered_run : forall acts st st', Inv D st -> Ordered st -> run D st acts = Some st' -> Ordered st'.
Proof.
  induction acts as [|[a e] acts IH]; simpl; intros st st' I U H.
  - injection H as <-; auto.
  - destruct (step D st a e) as [st1|] eqn:E; [|discriminate].
    eapply IH; [eapply step_inv; eauto | eapply ordered_step; eauto | auto].
Qed.

End Reliance.

(** An operation that landed has its predecessors. *)
Lemma waits_landed : forall p outs i q j, may_cut p outs = true -> landed outs i ->
  nth_error p i = Some q -> In j (waits q) -> landed outs j.
Proof.
  unfold may_cut; intros p outs i q j H Hi Hq Hj; apply andb_prop in H as [_ H].
  rewrite forallb_forall in H; specialize (H _ (nth_in_combine _ _ _ _ _ _ _ Hq Hi)); simpl in H.
  rewrite forallb_landed in H; auto.
Qed.

(** If an LPN shows such a claim, each LPN of the command that it relies on shows that or something later. *)
Theorem nothing_shows_without_what_it_relies_on : forall D st outs cl cl' a, sound_device D -> reachable D st ->
  may_cut (pend st) outs = true -> In cl (claims st) -> In cl' (claims st) ->
  c_after cl = Some a -> c_num cl' = a ->
  let img := after_cut st outs in
  newest D img (c_lpn cl) = c_num cl -> c_num cl <> 0 ->
  a <= newest D img (c_lpn cl').
Proof.
  intros D st outs cl cl' a on R Hc Hs Ht Ha Et img En Nz.
  pose proof (reachable_inv D on _ R) as I; pose proof (i_cuts _ _ I _ Hc) as G.
  assert (U : Ordered st).
  { destruct R as (acts & R); apply (ordered_run D on acts init st); auto; [apply inv_init | intros c b []]. }
  destruct (U cl a Hs Ha) as (Hm & _ & Hw).
  destruct (newest_in D on img (c_lpn cl)) as [Z | (c & Hwit & Hn)]; [congruence|].
  rewrite En in Hwit, Hn; rewrite <- Et; apply (g_dom _ _ _ _ G); auto.
  intros j Hj; destruct (Hw cl' Ht Et j Hj) as (i & q & Hi & Hq & Hjq).
  eapply waits_landed; eauto; eapply (g_landed _ _ _ _ G _ _ _ Hwit Hn cl); auto.
Qed.
