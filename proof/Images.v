(** * What each operation does to the witnesses of one image

    Idea. One lemma for each operation that the firmware issues: under the
    conditions that its guard has checked, which witnesses does it add or remove?

    Invariant of an image ([Sound]): no page is of a future incarnation; data
    pages of the present one have a head; an entry of the present incarnation
    names a page that is there. The last part is what "an entry waits for its
    page" is for: without it, the next page programmed at that address would be
    read through the entry. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Witnesses.

Section Images.
Variable D : device.
Hypothesis on : forall g, has D g = true.

Record Sound (img : image) : Prop := {
  s_range : forall a p, cells img a = Page p -> In a (addrs D);
  s_pages : forall a p, cells img a = Page p -> inc_of p <= life img (sb_of a);
  s_heads : forall a ns n i c, cells img a = Page (Data ns n i c) ->
    i = life img (sb_of a) -> cells img (head_at (sb_of a)) = Page (Head (life img (sb_of a)));
  s_entries : forall s n a i, words img (EntA s) = Place n a i ->
    i <= life img (sb_of a) /\
    (i = life img (sb_of a) -> exists ns n' c, cells img a = Page (Data ns n' i c))
}.

Lemma sound_blank : Sound blank.
Proof. split; simpl; intros; discriminate. Qed.

(** Words that hold numbers that do not count. *)
Definition is_hiding (w : loc) : bool :=
  match w with OpenW _ | AbortW _ => true | _ => false end.
Definition same_hiding (img img' : image) : Prop :=
  forall w, is_hiding w = true -> words img' w = words img w.

Lemma same_hid : forall img img' n, same_hiding img img' -> (Hid D img' n <-> Hid D img n).
Proof.
  unfold Hid, same_hiding; intros img img' n H; split; intros (k & Hk & E); exists k; split; auto;
    [rewrite !H in E by reflexivity | rewrite !H by reflexivity]; auto.
Qed.

Lemma same_hiding_refl : forall img, same_hiding img img.
Proof. intros img w _; auto. Qed.

Lemma store_hiding : forall img w v, is_hiding w = false ->
  same_hiding img (land img (Store w v) Whole).
Proof. intros img w v H x Hx; simpl; destruct (loc_dec x w); congruence. Qed.

Lemma program_hiding : forall img a p r, same_hiding img (land img (Program a p) r).
Proof. intros img a p r x _; destruct r; simpl; auto; destruct (cells img a); auto. Qed.

Lemma erase_hiding : forall img sb b r, same_hiding img (land img (Erase sb b) r).
Proof. intros img sb b r x _; destruct r; auto. Qed.

(** ** Programs *)

Lemma set_cell_sound : forall img a x, Sound img -> cells img a = Erased ->
  match x with
  | Page (Data _ _ i _) => In a (addrs D) /\ a <> head_at (sb_of a) /\ place img (sb_of a) i
  | Page (Head i) => In a (addrs D) /\ a = head_at (sb_of a) /\ i = life img (sb_of a)
  | _ => True
  end -> Sound (set_cell a x img).
Proof.
  intros img a x [R P H E] Ha Hx; split; unfold life in *; simpl; intros.
  - destruct (addr_dec a0 a) as [->|N]; [|eauto].
    destruct x as [| |[]]; try discriminate; tauto.
  - destruct (addr_dec a0 a) as [->|N]; [|eauto].
    destruct x as [| |[i|? ? i ?]]; try discriminate; injection H0 as <-; simpl.
    + destruct Hx as (_ & _ & ->); auto.
    + destruct Hx as (_ & _ & -> & _); auto.
  - destruct (addr_dec a0 a) as [->|N].
    + rewrite H0 in Hx; destruct Hx as (_ & N & -> & Hh).
      destruct (addr_dec (head_at (sb_of a)) a); [congruence | auto].
    + specialize (H _ _ _ _ _ H0 H1).
      destruct (addr_dec (head_at (sb_of a0)) a) as [<-|]; [congruence | auto].
  - specialize (E _ _ _ _ H0) as [L E]; split; auto; intros Hi.
    destruct (E Hi) as (ns & n' & c & Hc); destruct (addr_dec a0 a) as [->|]; [congruence | eauto].
Qed.

(** Nothing changes for a page that is erased: torn, or a head, or still erased. *)
Lemma set_cell_wit_same : forall img a x w, Sound img -> cells img a = Erased ->
  match x with Page (Data _ _ _ _) => False | _ => True end ->
  (Wit D (set_cell a x img) w <-> Wit D img w).
Proof.
  intros img a x w S Ha Hx; split.
  - destruct 1 as [b ns n i c l Hb Hc [Hi Hp] Hl | s n b i l ns n' i' c Hs HA HB Hi Hc [Hi' Hp] |].
    + simpl in Hc; unfold life in *; simpl in *; destruct (addr_dec b a) as [->|N].
      { subst x; easy. }
      econstructor 1; eauto; split; auto. eapply s_heads; eauto.
    + simpl in *; unfold life in *; simpl in *; destruct (addr_dec b a) as [->|N].
      { subst x; easy. }
      econstructor 2; eauto; split; auto. eapply s_heads; eauto.
    + econstructor 3; eauto.
  - assert (Hold : forall b, (exists p, cells img b = Page p) -> cells (set_cell a x img) b = cells img b).
    { intros b (p & Hb); simpl; destruct (addr_dec b a); congruence. }
    destruct 1 as [b ns n i c l Hb Hc [Hi Hp] Hl | s n b i l ns n' i' c Hs HA HB Hi Hc [Hi' Hp] |].
    + econstructor 1; eauto. { rewrite Hold; eauto. }
      split; auto; rewrite Hold; eauto.
    + econstructor 2; eauto. { rewrite Hold; eauto. }
      split; auto; rewrite Hold; eauto.
    + econstructor 3; eauto.
Qed.

(** A data page adds its own witnesses and no others: no entry of the present
    incarnation can name a page that is erased. *)
Lemma set_cell_wit_data : forall img a ns n c w, Sound img -> cells img a = Erased ->
  In a (addrs D) -> a <> head_at (sb_of a) -> place img (sb_of a) (life img (sb_of a)) ->
  (Wit D (set_cell a (Page (Data ns n (life img (sb_of a)) c)) img) w <->
   Wit D img w \/ exists l, In l ns /\ w = W l n c).
Proof.
  intros img a ns n c w S Ha Hr Hn [_ Hh]; set (x := Page _).
  assert (Hold : forall b, (exists p, cells img b = Page p) -> cells (set_cell a x img) b = cells img b).
  { intros b (p & Hb); simpl; destruct (addr_dec b a); congruence. }
  split.
  - destruct 1 as [b ns' n' i c' l Hb Hc [Hi Hp] Hl | s m b i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |].
    + simpl in Hc; destruct (addr_dec b a) as [->|N].
      { injection Hc as <- <- <- <-; eauto. }
      left; econstructor 1; eauto; split; auto; eapply s_heads; eauto.
    + simpl in Hc; destruct (addr_dec b a) as [->|N].
      { exfalso; simpl in HA; destruct (s_entries _ S _ _ _ _ HA) as [_ E].
        destruct (E Hi) as (? & ? & ? & E'); congruence. }
      left; econstructor 2; eauto; split; auto; eapply s_heads; eauto.
    + left; econstructor 3; eauto.
  - intros [H | (l & Hl & ->)].
    + destruct H as [b ns' n' i c' l Hb Hc [Hi Hp] Hl | s m b i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |].
      * econstructor 1; eauto. { rewrite Hold; eauto. }
        split; auto; rewrite Hold; eauto.
      * econstructor 2; eauto. { rewrite Hold; eauto. }
        split; auto; rewrite Hold; eauto.
      * econstructor 3; eauto.
    + econstructor 1; eauto.
      { simpl; destruct (addr_dec a a); [reflexivity | congruence]. }
      split; auto; rewrite Hold; eauto.
Qed.

(** ** Erases *)

Lemma set_block_ok : forall img sb b x, Sound img -> (forall p, x <> Page p) ->
  (forall a p, in_block sb b a = true -> cells img a = Page p -> inc_of p <> life img sb) ->
  Sound (set_block sb b x img) /\ (forall w, Wit D (set_block sb b x img) w <-> Wit D img w).
Proof.
  intros img sb b x S Hx Hb.
  assert (Hblk : forall a, in_block sb b a = true -> sb_of a = sb).
  { unfold in_block; intros a H; apply andb_prop in H as [H _]; now apply Nat.eqb_eq. }
  assert (Hhead : forall sb', cells img (head_at sb') = Page (Head (life img sb')) ->
                  in_block sb b (head_at sb') = false).
  { intros sb' H; destruct (in_block sb b (head_at sb')) eqn:E; auto; exfalso.
    pose proof (Hblk _ E) as E'; simpl in E'; subst; eapply Hb; eauto. }
  assert (Hdata : forall a ns n i c, cells img a = Page (Data ns n i c) -> i = life img (sb_of a) ->
                  in_block sb b a = false).
  { intros a ns n i c H ->; destruct (in_block sb b a) eqn:E; auto; exfalso.
    pose proof (Hblk _ E); subst; eapply Hb; eauto. }
  split.
  - split; unfold life in *; simpl; intros.
    + destruct (in_block sb b a); [exfalso; eapply Hx; eauto | eapply s_range; eauto].
    + destruct (in_block sb b a); [exfalso; eapply Hx; eauto | eapply (s_pages _ S); eauto].
    + destruct (in_block sb b a); [exfalso; eapply Hx; eauto|].
      pose proof (s_heads _ S _ _ _ _ _ H H0) as Hh; unfold life in Hh.
      rewrite Hhead; auto.
    + destruct (s_entries _ S _ _ _ _ H) as [L E]; split; auto.
      intros Hi; destruct (E Hi) as (ns & n' & c & Hc); exists ns, n', c.
      erewrite Hdata; eauto.
  - intros w; split.
    + destruct 1 as [a ns' n' i c' l Ha Hc [Hi Hp] Hl | s m a i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |];
        simpl in *; unfold life in *; simpl in *.
      * destruct (in_block sb b a); [exfalso; eapply Hx; eauto|].
        econstructor 1; eauto; split; auto; eapply (s_heads _ S); eauto.
      * destruct (in_block sb b a); [exfalso; eapply Hx; eauto|].
        econstructor 2; eauto; split; auto; eapply (s_heads _ S); eauto.
      * econstructor 3; eauto.
    + destruct 1 as [a ns' n' i c' l Ha Hc [Hi Hp] Hl | s m a i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |].
      * econstructor 1; eauto. { simpl; erewrite Hdata; eauto. }
        split; auto; simpl; rewrite Hhead; auto.
      * econstructor 2; eauto. { simpl; erewrite Hdata; eauto. }
        split; auto; simpl; rewrite Hhead; auto.
      * econstructor 3; eauto.
Qed.

(** ** Stores *)

Ltac word_cases := repeat match goal with
  | H : context [loc_dec ?a ?b] |- _ => destruct (loc_dec a b); try discriminate
  | |- context [loc_dec ?a ?b] => destruct (loc_dec a b); try discriminate
  end.

(** A word that is no life and no part of an entry or record. *)
Lemma store_aside_ok : forall img w v, Sound img ->
  match w with OpenW _ | AbortW _ | Other _ => True | _ => False end ->
  Sound (set_word w v img) /\ (forall x, Wit D (set_word w v img) x <-> Wit D img x).
Proof.
  intros img w v S H; destruct w; try contradiction;
  (split; [destruct S; split; unfold life in *; simpl; intros; word_cases; eauto |]);
  (intros x; split; destruct 1 as [a ns' n' i c' l Ha Hc Hp Hl | s m a i l ns' n' i' c' Hs HA HB Hi Hc Hp |];
   unfold place, life in *; simpl in *; word_cases;
   [econstructor 1 | econstructor 2 | econstructor 3 | econstructor 1 | econstructor 2 | econstructor 3];
   unfold place, life; simpl; eauto; word_cases; auto).
Qed.

Lemma store_hiding_ok : forall img w v, Sound img -> is_hiding w = true ->
  Sound (set_word w v img) /\ (forall x, Wit D (set_word w v img) x <-> Wit D img x).
Proof. intros img w v S H; apply store_aside_ok; auto; destruct w; auto; discriminate. Qed.

(** The superblock's pages no longer count. *)
Lemma mark_dead_ok : forall img sb, Sound img ->
  let img' := set_word (Life sb) (Num (S (life img sb))) img in
  Sound img' /\ (forall x, Wit D img' x -> Wit D img x) /\
  (forall x, Wit D img x -> ~ In (w_lpn x) (owners D img sb) -> Wit D img' x).
Proof.
  intros img sb S img'.
  assert (Hlife : forall x, life img' x = if Nat.eq_dec x sb then Datatypes.S (life img sb) else life img x).
  { intros x; unfold life, img'; simpl.
    destruct (loc_dec (Life x) (Life sb)) as [E|N], (Nat.eq_dec x sb); auto; congruence. }
  assert (Hdead : forall a p, cells img a = Page p -> inc_of p = life img' (sb_of a) -> sb_of a <> sb).
  { intros a p H E N; rewrite Hlife in E; destruct (Nat.eq_dec (sb_of a) sb); try congruence.
    apply (s_pages _ S) in H; rewrite N in H; lia. }
  assert (Hkeep : forall sb', sb' <> sb -> life img' sb' = life img sb').
  { intros sb' N; rewrite Hlife; destruct (Nat.eq_dec sb' sb); congruence. }
  assert (Hle : forall sb', life img sb' <= life img' sb').
  { intros sb'; rewrite Hlife; destruct (Nat.eq_dec sb' sb); subst; lia. }
  split; [|split].
  - split; simpl; intros.
    + eapply s_range; eauto.
    + apply Nat.le_trans with (life img (sb_of a)); [eapply s_pages; eauto | apply Hle].
    + change (i = life img' (sb_of a)) in H0.
      change (cells img (head_at (sb_of a)) = Page (Head (life img' (sb_of a)))).
      assert (N : sb_of a <> sb) by (apply (Hdead a _ H); auto).
      rewrite Hkeep in H0 |- * by auto; eapply s_heads; eauto.
    + destruct (s_entries _ S _ _ _ _ H) as [L E]; change (i <= life img' (sb_of a) /\
        (i = life img' (sb_of a) -> exists ns n' c, cells img a = Page (Data ns n' i c))).
      specialize (Hle (sb_of a)); split; [lia|]; intros Hi; apply E.
      rewrite Hlife in Hi; destruct (Nat.eq_dec (sb_of a) sb) as [<-|]; lia.
  - destruct 1 as [a ns' n' i c' l Ha Hc [Hi Hp] Hl | s m a i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |].
    + assert (N : sb_of a <> sb) by (apply (Hdead a _ Hc); auto).
      rewrite Hkeep in * by auto; econstructor 1; eauto; split; auto.
    + assert (N : sb_of a <> sb) by (apply (Hdead a _ Hc); auto).
      rewrite Hkeep in * by auto; econstructor 2; eauto; split; auto.
    + econstructor 3; eauto.
  - destruct 1 as [a ns' n' i c' l Ha Hc [Hi Hp] Hl | s m a i l ns' n' i' c' Hs HA HB Hi Hc [Hi' Hp] |];
      simpl; unfold owners; rewrite on, in_app_iff; intros No.
    + assert (N : sb_of a <> sb).
      { intros E; apply No; left; unfold oob_owners; apply in_flat_map; exists a; split; auto.
        rewrite (proj2 (Nat.eqb_eq _ _) E); unfold of_page.
        rewrite (proj2 (data_at_iff D on img a ns' n' c')) by (exists i; repeat split; auto).
        rewrite map_map; simpl; rewrite map_id; auto. }
      econstructor 1; eauto; split; rewrite Hkeep; auto.
    + assert (N : sb_of a <> sb).
      { intros E; apply No; right; unfold entry_owners; apply in_flat_map; exists s; rewrite in_seq.
        split; [lia|]; unfold entry_at; rewrite HA, HB, (proj2 (Nat.eqb_eq _ _) E); simpl; auto. }
      econstructor 2; eauto. { rewrite Hkeep; auto. } split; rewrite Hkeep; auto.
    + econstructor 3; eauto.
Qed.

(** First word of an entry in a free slot. *)
Lemma store_place_ok : forall img s n a i ns n' c, Sound img ->
  words img (EntA s) = Zero -> words img (EntB s) = Zero ->
  cells img a = Page (Data ns n' i c) -> place img (sb_of a) i ->
  let img' := set_word (EntA s) (Place n a i) img in
  Sound img' /\ (forall x, Wit D img' x <-> Wit D img x).
Proof.
  intros img s n a i ns n' c S HA HB Hc [Hi Hp] img'.
  split.
  - destruct S; split; unfold life in *; simpl; intros; word_cases; eauto.
    injection H as <- <- <-; split; [lia | eauto].
  - intros x; split; destruct 1 as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs HA' HB' Hj Hc' Hp' |];
      unfold place, life in *; simpl in *; word_cases;
      try (econstructor 1; unfold place, life; simpl; eauto; fail);
      try (econstructor 3; simpl; eauto; word_cases; eauto; fail).
    + injection e as ->; congruence.
    + econstructor 2; unfold place, life; simpl; eauto.
    + econstructor 2; unfold place, life; simpl; eauto. word_cases; [|eauto]; congruence.
Qed.

(** Second word of an entry: with the first, a witness. *)
Lemma store_name_ok : forall img s l, Sound img -> s < slots D -> words img (EntB s) = Zero ->
  let img' := set_word (EntB s) (Name l) img in
  Sound img' /\
  (forall x, Wit D img' x <-> Wit D img x \/
     exists n a i ns n' i' c, words img (EntA s) = Place n a i /\ i = life img (sb_of a) /\
       cells img a = Page (Data ns n' i' c) /\ place img (sb_of a) i' /\ x = W l n c).
Proof.
  intros img s l S Hs HB img'; split.
  - destruct S; split; unfold life in *; simpl; intros; word_cases; eauto.
  - intros x; split.
    + destruct 1 as [b ns' m' j c' k Hb Hc' Hp' Hl | s' m b j k ns' m' j' c' Hs' HA' HB' Hj Hc' Hp' |];
        unfold place, life in *; simpl in *; word_cases.
      * left; econstructor 1; unfold place, life; simpl; eauto.
      * injection e as ->; injection HB' as <-; right.
        exists m, b, j, ns', m', j', c'; auto.
      * left; econstructor 2; unfold place, life; simpl; eauto.
      * left; econstructor 3; eauto.
    + intros [H | (n & a & i & ns & n' & i' & c & HA & Hi & Hc & Hp & ->)].
      * destruct H as [b ns' m' j c' k Hb Hc' Hp' Hl | s' m b j k ns' m' j' c' Hs' HA' HB' Hj Hc' Hp' |];
          unfold place, life in *; simpl in *.
        -- econstructor 1; unfold place, life; simpl; eauto.
        -- econstructor 2; unfold place, life; simpl; eauto. word_cases; congruence.
        -- econstructor 3; eauto.
      * econstructor 2; unfold place, life; simpl; eauto. word_cases; congruence.
Qed.

(** The words of a record of deallocations. *)
Lemma store_record_ok : forall img s n, Sound img -> words img (DeaB s) = Zero ->
  words img (DeaA s) = Zero ->
  let img' := set_word (DeaA s) (Num n) img in
  Sound img' /\ (forall x, Wit D img' x <-> Wit D img x).
Proof.
  intros img s n S HB HA img'; split.
  - destruct S; split; unfold life in *; simpl; intros; word_cases; eauto.
  - intros x; split; destruct 1 as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs HA' HB' Hj Hc' Hp' | s' m f len l Hs HA' HB' Hl];
      unfold place, life in *; simpl in *; word_cases;
      try (econstructor 1; unfold place, life; simpl; eauto; fail);
      try (econstructor 2; unfold place, life; simpl; eauto; fail).
    + injection e as ->; congruence.
    + econstructor 3; eauto.
    + econstructor 3; simpl; eauto; word_cases; eauto. congruence.
Qed.

Lemma store_range_ok : forall img s f len, Sound img -> s < slots D -> words img (DeaB s) = Zero ->
  let img' := set_word (DeaB s) (Range f len) img in
  Sound img' /\
  (forall x, Wit D img' x <-> Wit D img x \/
     exists n l, words img (DeaA s) = Num n /\ In l (seq f len) /\ x = W l n 0).
Proof.
  intros img s f len S Hs HB img'; split.
  - destruct S; split; unfold life in *; simpl; intros; word_cases; eauto.
  - intros x; split.
    + destruct 1 as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs' HA' HB' Hj Hc' Hp' | s' m f' len' l Hs' HA' HB' Hl];
        unfold place, life in *; simpl in *; word_cases.
      * left; econstructor 1; unfold place, life; simpl; eauto.
      * left; econstructor 2; unfold place, life; simpl; eauto.
      * injection e as ->; injection HB' as <- <-; right; eauto.
      * left; econstructor 3; eauto.
    + intros [H | (n & l & HA & Hl & ->)].
      * destruct H as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs' HA' HB' Hj Hc' Hp' | s' m f' len' l Hs' HA' HB' Hl];
          unfold place, life in *; simpl in *.
        -- econstructor 1; unfold place, life; simpl; eauto.
        -- econstructor 2; unfold place, life; simpl; eauto.
        -- econstructor 3; simpl; eauto; word_cases; eauto; congruence.
      * econstructor 3; simpl; eauto; word_cases; congruence.
Qed.

(** A word of an entry or a record is zeroed. *)
Lemma store_zero_ok : forall img w g, Sound img -> zero_guard w = Some g ->
  let img' := set_word w Zero img in
  Sound img' /\ (forall x, Wit D img' x -> Wit D img x) /\
  (forall x, Wit D img x -> ~ In (w_lpn x) (named_by D img w) -> Wit D img' x).
Proof.
  intros img w g S G img'; destruct w as [| s0 | s0 | s0 | s0 | | |]; try discriminate;
  (split; [destruct S; split; unfold life in *; simpl; intros; word_cases; eauto |]);
  (split;
   [destruct 1 as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs HA' HB' Hj Hc' Hp' | s' m f len l Hs HA' HB' Hl];
    unfold place, life in *; simpl in *; word_cases;
    [econstructor 1 | econstructor 2 | econstructor 3]; unfold place, life; simpl; eauto
   |destruct 1 as [b ns' m' j c' l Hb Hc' Hp' Hl | s' m b j l ns' m' j' c' Hs HA' HB' Hj Hc' Hp' | s' m f len l Hs HA' HB' Hl];
    intros No; simpl in No;
    [econstructor 1; unfold place, life in *; simpl; eauto | | ]]).
  all: try (econstructor 3; simpl; eauto; fail).
  all: try (econstructor 2; unfold place, life in *; simpl; eauto; fail).
  - econstructor 2; unfold place, life in *; simpl; eauto. word_cases; auto.
    exfalso; injection e as ->; apply No.
    unfold of_entry, entry_at; rewrite HA', HB', on; simpl; unfold life; rewrite Hj, Nat.eqb_refl.
    rewrite (proj2 (data_at_iff D on img b ns' m' c')) by (exists j'; split; auto); simpl; auto.
  - econstructor 2; unfold place, life in *; simpl; eauto. word_cases; auto.
    exfalso; injection e as ->; apply No.
    unfold of_entry, entry_at; rewrite HA', HB', on; simpl; unfold life; rewrite Hj, Nat.eqb_refl.
    rewrite (proj2 (data_at_iff D on img b ns' m' c')) by (exists j'; split; auto); simpl; auto.
  - econstructor 3; simpl; eauto; word_cases; auto.
    exfalso; injection e as ->; apply No; unfold of_record; rewrite HA', HB', map_map; simpl.
    rewrite map_id; auto.
  - econstructor 3; simpl; eauto; word_cases; auto.
    exfalso; injection e as ->; apply No; unfold of_record; rewrite HA', HB', map_map; simpl.
    rewrite map_id; auto.
Qed.

(** ** Several words are zeroed, or some of them *)

(** What the witnesses of one image rest on is in the other too. *)
Lemma wit_kept : forall img img' x, (forall a, cells img' a = cells img a) ->
  (forall sb, words img' (Life sb) = words img (Life sb)) ->
  (forall w, is_record w = true -> words img w <> Zero -> words img' w = words img w) ->
  Wit D img x -> Wit D img' x.
Proof.
  intros img img' x Hc Hl Hr H.
  assert (Hi : forall sb, life img' sb = life img sb) by (intros; unfold life; rewrite Hl; auto).
  destruct H as [a ns m i c l Ha Hp Hq Hn | s m a i l ns m' i' c Hs HA HB He Hp Hq | s m f len l Hs HA HB Hn].
  - econstructor 1; eauto; [rewrite Hc; eauto | unfold place in *; rewrite Hi, Hc; auto].
  - apply WEntry with (s := s) (a := a) (i := i) (names := ns) (n' := m') (i' := i'); auto.
    + rewrite Hr; auto; congruence.
    + rewrite Hr; auto; congruence.
    + rewrite Hi; auto.
    + rewrite Hc; auto.
    + unfold place in *; rewrite Hi, Hc; auto.
  - apply WRecord with (s := s) (first := f) (len := len); auto; rewrite Hr; auto; congruence.
Qed.

Lemma zero_all_cells : forall ws img a, cells (zero_all img ws) a = cells img a.
Proof. induction ws as [|w ws IH]; intros img a; simpl; auto; rewrite IH; auto. Qed.

Lemma zero_all_in : forall ws img x, In x ws -> words (zero_all img ws) x = Zero.
Proof.
  assert (Z : forall ws img x, words img x = Zero -> words (zero_all img ws) x = Zero).
  { induction ws as [|w ws IH]; intros img x H; simpl; auto; apply IH; simpl; destruct (loc_dec x w); auto. }
  induction ws as [|w ws IH]; simpl; intros img x H; [easy|].
  destruct H as [-> | H]; auto; apply Z; simpl; destruct (loc_dec x x); congruence.
Qed.

Lemma zero_all_out : forall ws img x, ~ In x ws -> words (zero_all img ws) x = words img x.
Proof.
  induction ws as [|w ws IH]; intros img x H; simpl; auto.
  rewrite IH by (intros Hx; apply H; simpl; auto); simpl; destruct (loc_dec x w); auto.
  exfalso; apply H; simpl; auto.
Qed.

Lemma zero_all_ok : forall img ws part, Sound img -> forallb is_record ws = true -> incl part ws ->
  let img' := zero_all img part in
  Sound img' /\ same_hiding img img' /\ (forall x, Wit D img' x -> Wit D img x) /\
  (forall x, Wit D img x -> ~ In (w_lpn x) (flat_map (named_by D img) ws) -> Wit D img' x) /\
  (forall x, Wit D (zero_all img ws) x -> Wit D img' x).
Proof.
  intros img ws part S R P img'; rewrite forallb_forall in R.
  assert (N : forall sb, ~ In (Life sb) ws) by (intros sb H; apply R in H; discriminate).
  assert (Out : forall x, ~ In x ws -> words img' x = words img x).
  { intros x Hx; unfold img'; apply zero_all_out; auto. }
  assert (Hi : forall sb, life img' sb = life img sb) by (intros sb; unfold life; rewrite Out; auto).
  assert (SW : Sound img' /\ same_hiding img img' /\ forall x, Wit D img' x -> Wit D img x).
  { unfold img'; clear img' Out Hi; revert img S; induction part as [|w part IH]; intros img S; simpl.
    - split; auto using same_hiding_refl.
    - assert (Hw : is_record w = true) by (apply R, P; simpl; auto).
      assert (Hg : exists g, zero_guard w = Some g) by (destruct w; try discriminate; simpl; eauto).
      destruct Hg as (g & Hg); destruct (store_zero_ok img w g S Hg) as (S1 & W1 & _).
      destruct (IH) with (img := set_word w Zero img) as (S2 & H2 & W2); auto.
      { intros x Hx; apply P; simpl; auto. }
      split; auto; split; auto.
      intros x Hx; rewrite H2 by auto; simpl; destruct (loc_dec x w); auto; subst; destruct w; discriminate. }
  destruct SW as (S' & Hh & W'); split; [auto|]; split; [auto|]; split; [auto|]; split.
  - intros x H Hno.
    destruct H as [a ns m i c l Ha Hp Hq Hn | s m a i l ns m' i' c Hs HA HB He Hp Hq | s m f len l Hs HA HB Hn]; simpl in Hno.
    + apply WPage with (a := a) (names := ns) (i := i); auto; unfold place in *; rewrite ?Hi;
        unfold img'; rewrite !zero_all_cells; auto.
    + assert (Hname : In l (map w_lpn (of_entry D img s))).
      { unfold of_entry, entry_at; rewrite HA, HB, on; simpl; rewrite He, Nat.eqb_refl.
        rewrite (proj2 (data_at_iff D on img a ns m' c)) by (exists i'; split; auto); simpl; auto. }
      apply WEntry with (s := s) (a := a) (i := i) (names := ns) (n' := m') (i' := i'); auto.
      * rewrite Out; auto; intros Hx; apply Hno, in_flat_map; exists (EntA s); auto.
      * rewrite Out; auto; intros Hx; apply Hno, in_flat_map; exists (EntB s); auto.
      * rewrite Hi; auto.
      * unfold img'; rewrite zero_all_cells; auto.
      * unfold place in *; rewrite Hi; unfold img'; rewrite zero_all_cells; auto.
    + assert (Hname : In l (map w_lpn (of_record img s))).
      { unfold of_record; rewrite HA, HB, map_map; simpl; rewrite map_id; auto. }
      apply WRecord with (s := s) (first := f) (len := len); auto; rewrite Out; auto;
        intros Hx; apply Hno, in_flat_map; [exists (DeaA s) | exists (DeaB s)]; auto.
  - intros x; apply wit_kept.
    + intros a; unfold img'; rewrite !zero_all_cells; auto.
    + intros sb; rewrite Out, zero_all_out; auto.
    + intros w _ Hnz; destruct (in_dec loc_dec w ws) as [Hw | Hw].
      * exfalso; apply Hnz, zero_all_in; auto.
      * rewrite Out, zero_all_out; auto.
Qed.

End Images.
