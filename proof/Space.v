(** * Collection finds room: the count

    Idea. Count pages, and forget what is in them. A closed superblock takes as many
    programs to collect as it has pages with owners, and one for each owner that
    finds no room for an entry. Each victim that takes fewer programs than a
    superblock has pages gives more than it takes, and one free superblock is
    enough to begin. So as long as the device has more spare pages than the reserve,
    a victim exists, and collecting ends with the reserve free.

    This is arithmetic beside the model, not a theorem about its steps. That one
    superblock at least is free after any cut is [the_reserve_is_free_after_any_cut].

    Absent: room for entries in NVRAM, pads of word lines, worn blocks, what hosts
    write meanwhile (they stop before the reserve). *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.

Section Space.
(** Pages of a superblock. *)
Variable P : nat.

(** [closed]: the programs that each closed superblock would take. [room]: pages left in the one
    that collection fills. [free]: superblocks. *)
Record space := Space { closed : list nat; room : nat; free : nat }.

Inductive collects : space -> space -> Prop :=
| fits : forall l1 v l2 r f, v <= r ->
    collects (Space (l1 ++ v :: l2) r f) (Space (l1 ++ l2) (r - v) (S f))
| opens : forall l1 v l2 r f, r < v ->
    collects (Space (l1 ++ v :: l2) r (S f)) (Space (P :: l1 ++ l2) (P + r - v) (S f)).

Inductive collects_on : space -> space -> Prop :=
| done : forall s, collects_on s s
| more : forall s s' s'', collects s s' -> collects_on s' s'' -> collects_on s s''.

(** What collecting would gain. *)
Fixpoint gain (l : list nat) : nat := match l with [] => 0 | v :: rest => (P - v) + gain rest end.
Definition spare (s : space) : nat := room s + free s * P + gain (closed s).

Lemma gain_app : forall l1 l2, gain (l1 ++ l2) = gain l1 + gain l2.
Proof. induction l1; simpl; intros; auto; rewrite IHl1; lia. Qed.

Lemma a_victim : forall l, 0 < gain l -> exists l1 v l2, l = l1 ++ v :: l2 /\ v < P.
Proof.
  induction l as [|v l IH]; simpl; intros H; [lia|].
  destruct (Nat.lt_ge_cases v P).
  - exists [], v, l; auto.
  - destruct IH as (l1 & v' & l2 & -> & Hv); [lia|]; exists (v :: l1), v', l2; auto.
Qed.

(** One victim: it can be collected, nothing spare is lost, no free superblock is used up. *)
Lemma one_more : forall s, 1 <= free s -> room s <= P -> 0 < gain (closed s) ->
  exists s', collects s s' /\ free s <= free s' /\ room s' <= P /\ spare s' = spare s /\
    gain (closed s') < gain (closed s).
Proof.
  intros [c r f] Hf Hr Hg; simpl in *; destruct (a_victim c Hg) as (l1 & v & l2 & -> & Hv).
  destruct (Nat.le_gt_cases v r).
  - eexists; split; [apply fits; auto|]; unfold spare; simpl; rewrite !gain_app; simpl; lia.
  - destruct f as [|f]; [lia|].
    eexists; split; [apply opens; auto|]; unfold spare; simpl; rewrite !gain_app; simpl.
    rewrite Nat.sub_diag; lia.
Qed.

Theorem collection_finds_room : forall reserve s, 1 <= free s -> room s <= P ->
  reserve * P < spare s -> exists s', collects_on s s' /\ reserve <= free s'.
Proof.
  intros reserve s; remember (gain (closed s)) as g eqn:E; revert s E.
  induction g as [g IH] using lt_wf_ind; intros s E Hf Hr Hs.
  destruct (Nat.le_gt_cases reserve (free s)) as [H | H]; [exists s; split; auto using done|].
  assert (Hg : 0 < gain (closed s)) by (unfold spare in Hs; nia).
  destruct (one_more s Hf Hr Hg) as (s' & Hc & H1 & H2 & H3 & H4).
  destruct (IH (gain (closed s'))) with (s := s') as (s'' & Hc' & Hd); auto; try lia.
  exists s''; split; auto; eapply more; eauto.
Qed.

End Space.
