(** * Each guard is needed

    Idea. For every guard a run that a device without it accepts, and a cut after
    which an LPN reads what it must not, or a command is there in part. Coq runs
    the model ([vm_compute]) and sees the loss. With all guards on the same run is
    refused, at the step or at the cut that the comment names; or, where the guard
    is a rule of reading, it is accepted and loses nothing.

    A position in the list of outcomes is the number of the operation since the
    last cut; an entry and a record are two operations. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery Firmware Order Witnesses Images Invariant Adds
  StepsAdd StepsKill StepsNumber StepsWorld Theorems Reliance.

Definition guard_dec : forall x y : guard, {x = y} + {x <> y}.
Proof. decide equality. Defined.

(** Three superblocks of two blocks of four pages, four slots, two words. *)
Definition full : device := Device (fun _ => true) 3 2 4 4 2 0.
Definition without (g : guard) : device :=
  Device (fun x => if guard_dec x g then false else true) 3 2 4 4 2 0.

(** ** What is wrong after a cut *)

(** An LPN shows less than its floor, or what no command said. *)
Definition misread (D : device) (st : state) (img : image) (l : lpn) : bool :=
  negb ((floor st l <=? newest D img l)
        && ((newest D img l =? 0) && (read D img l =? 0)
            || existsb (fun c => (c_lpn c =? l) && (c_num c =? newest D img l)
                                 && (c_content c =? read D img l)) (claims st))).

(** One LPN shows a command, and another shows something older. *)
Definition torn (D : device) (st : state) (img : image) : bool :=
  existsb (fun c => negb (c_num c =? 0) && (newest D img (c_lpn c) =? c_num c)
    && existsb (fun c' => (c_num c' =? c_num c) && (newest D img (c_lpn c') <? c_num c))
               (claims st)) (claims st).

(** An LPN shows what relies on a command, and another LPN something older than that command. *)
Definition unsupported (D : device) (st : state) (img : image) : bool :=
  existsb (fun c => match c_after c with
    | Some a => negb (c_num c =? 0) && (newest D img (c_lpn c) =? c_num c)
        && existsb (fun c' => (c_num c' =? a) && (newest D img (c_lpn c') <? a)) (claims st)
    | None => false
    end) (claims st).

Definition wrong (D : device) (st : state) (img : image) (l : lpn) : bool :=
  misread D st img l || torn D st img || unsupported D st img.

Definition plain (acts : list action) : list (action * list nat) := map (fun a => (a, [])) acts.

(** The run is accepted, the cut is possible, and LPN [l] or a command is wrong. *)
Definition loses (D : device) (acts : list action) (outs : list outcome) (l : lpn) : bool :=
  match run D init (plain acts) with
  | Some st => may_cut (pend st) outs && wrong D st (after_cut st outs) l
  | None => false
  end.

(** With all guards: the run is accepted and this cut is not possible. *)
Definition no_such_cut (acts : list action) (outs : list outcome) : bool :=
  match run full init (plain acts) with
  | Some st => negb (may_cut (pend st) outs)
  | None => false
  end.

(** With all guards: action [k] (from 0) is refused, those before it are accepted. *)
Definition refused_at (k : nat) (acts : list action) : bool :=
  match run full init (plain (firstn k acts)), run full init (plain (firstn (S k) acts)) with
  | Some _, None => true
  | _, _ => false
  end.

(** With all guards: the run and the cut are possible, and nothing is wrong. *)
Definition survives (acts : list action) (outs : list outcome) (l : lpn) : bool :=
  match run full init (plain acts) with
  | Some st => may_cut (pend st) outs && negb (wrong full st (after_cut st outs) l)
  | None => false
  end.

Lemma full_is_sound : sound_device full.
Proof. intros g; reflexivity. Qed.

(** The theorems say that the device with all guards never does. *)
Theorem full_never_loses : forall acts outs l, loses full acts outs l = false.
Proof.
  intros acts outs l; unfold loses; destruct (run full init (plain acts)) as [st|] eqn:R; auto.
  destruct (may_cut (pend st) outs) eqn:Hc; auto; simpl.
  assert (Hr : reachable full st) by (exists (plain acts); auto).
  unfold wrong; rewrite !orb_false_iff; split; [split|].
  - unfold misread; apply negb_false_iff.
    destruct (every_cut_reads_right full st outs full_is_sound Hr Hc l) as [H1 [[H2 H3] | H2]].
    + rewrite H2, H3 in *; simpl; apply Nat.leb_le in H1; rewrite H1; auto.
    + apply Nat.leb_le in H1; rewrite H1; simpl; apply orb_true_iff; right.
      destruct H2 as (cl & Hcl & E1 & E2 & E3); apply existsb_exists; exists cl; split; auto.
      rewrite E1, E2, E3, !Nat.eqb_refl; auto.
  - apply not_true_iff_false; unfold torn; intros H; apply existsb_exists in H as (c & Hcl & H).
    rewrite !andb_true_iff, negb_true_iff, Nat.eqb_neq, Nat.eqb_eq in H; destruct H as [[Nz E] H].
    apply existsb_exists in H as (c' & Hcl' & H); apply andb_prop in H as [En Hlt].
    apply Nat.eqb_eq in En; apply Nat.ltb_lt in Hlt.
    pose proof (commands_are_whole full st outs c c' full_is_sound Hr Hc Hcl Hcl' En E Nz); lia.
  - apply not_true_iff_false; unfold unsupported; intros H; apply existsb_exists in H as (c & Hcl & H).
    destruct (c_after c) as [a|] eqn:Ea; [|discriminate].
    rewrite !andb_true_iff, negb_true_iff, Nat.eqb_neq, Nat.eqb_eq in H; destruct H as [[Nz E] H].
    apply existsb_exists in H as (c' & Hcl' & H); apply andb_prop in H as [En Hlt].
    apply Nat.eqb_eq in En; apply Nat.ltb_lt in Hlt.
    pose proof (nothing_shows_without_what_it_relies_on full st outs c c' a full_is_sound Hr Hc Hcl Hcl' Ea En E Nz); lia.
Qed.

(** ** The runs *)

Notation w := Whole.
Notation x := Absent.

(** LPN 0 is written to a page of superblock 0, and superblock 1 is open. All is durable. *)
Definition one_page : list action :=
  [OpenSuperblock 0 []; Write None 0 5 (Addr 0 0 1); OpenSuperblock 1 []; PowerCut [w; w; w]].

(** LPN 1 shares the page (command 2, slot 0). *)
Definition shared : list action :=
  one_page ++ [Remap None 1 (Some 0) 5 (Addr 0 0 1) 0; PowerCut [w; w]].

(** The copy is not there yet, the death is. *)
Definition erase_waits := one_page ++ [Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); MarkDead 0].
Lemma without_erase_waits :
  loses (without EraseWaits) erase_waits [x; w] 0 = true /\ no_such_cut erase_waits [x; w] = true.
Proof. vm_compute; auto. Qed.

(** The superblock is used again with the old incarnation: a forgotten entry of LPN 1 names the new page. *)
Definition dead_before_erase := shared ++
  [Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); Reenter 1 2 (Addr 1 0 1) 1; EraseBlock 0 0;
   OpenSuperblock 0 []; Write None 2 9 (Addr 0 0 1)].
Lemma without_dead_before_erase :
  loses (without DeadBeforeErase) dead_before_erase [w; w; w; w; w; w] 1 = true
  /\ refused_at 8 dead_before_erase = true.
Proof. vm_compute; auto. Qed.

(** A death is undone, and the superblock opened since has a head: none of the three is free,
    where one is reserved. *)
Definition with_reserve (D : device) : device :=
  Device (has D) (superblocks D) (blocks D) (pages D) (slots D) (open_words D) 1.
Definition reserve_stays_free :=
  [OpenSuperblock 0 [2]; Write None 0 5 (Addr 0 0 1); OpenSuperblock 1 [2]; PowerCut [w; w; w];
   Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); MarkDead 0; OpenSuperblock 2 [0]].
Definition none_free (D : device) (outs : list outcome) : bool :=
  match run D init (plain reserve_stays_free) with
  | Some st => may_cut (pend st) outs && forallb (head_ok D (after_cut st outs)) (seq 0 (superblocks D))
  | None => false
  end.
Lemma without_reserve_stays_free :
  none_free (with_reserve (without ReserveStaysFree)) [w; x; w] = true
  /\ none_free (with_reserve full) [w; x; w] = false.
Proof. vm_compute; auto. Qed.

(** An acknowledged page in a superblock whose head is missing. *)
Definition head_before_data :=
  [OpenSuperblock 0 []; Write None 0 5 (Addr 0 1 1); Complete 1; Acknowledge 1].
Lemma without_head_before_data :
  loses (without HeadBeforeData) head_before_data [x; w] 0 = true
  /\ refused_at 2 head_before_data = true.
Proof. vm_compute; auto. Qed.

(** A page of an aborted command, left over by an erase that did not happen. *)
Definition incarnations :=
  [OpenSuperblock 1 []; Write None 0 5 (Addr 1 0 1); OpenSuperblock 0 []; Begin 0;
   Write (Some 2) 0 6 (Addr 0 1 1); PowerCut [w; w; w; w; w];
   ListAborted 0 2; ClearOpen 0; MarkDead 0; EraseBlock 0 0; Unlist 0;
   EraseBlock 0 1; OpenSuperblock 0 []].
Lemma without_incarnations :
  loses (without Incarnations) incarnations [w; w; w; w; w; x; w] 0 = true
  /\ survives incarnations [w; w; w; w; w; x; w] 0 = true.
Proof. vm_compute; auto. Qed.

(** An acknowledged entry whose page is missing. *)
Definition entry_after_page :=
  [OpenSuperblock 0 []; PowerCut [w]; Write None 0 5 (Addr 0 0 1); Remap None 1 (Some 0) 5 (Addr 0 0 1) 0;
   Complete 1; Complete 2; Acknowledge 2].
Lemma without_entry_after_page :
  loses (without EntryAfterPage) entry_after_page [x; w; w] 1 = true
  /\ refused_at 4 entry_after_page = true.
Proof. vm_compute; auto. Qed.

(** Half an entry: LPN 0 would get the page. *)
Definition torn_bits :=
  [OpenSuperblock 0 []; Write None 1 5 (Addr 0 0 1); Write None 0 7 (Addr 0 0 2); PowerCut [w; w; w];
   Remap None 2 (Some 1) 5 (Addr 0 0 1) 0].
Lemma without_torn_bits :
  loses (without TornBits) torn_bits [w; x] 0 = true /\ survives torn_bits [w; x] 0 = true.
Proof. vm_compute; auto. Qed.

(** A new first word beside the second word of a former entry. *)
Definition segment_zeroed := shared ++
  [Write None 1 6 (Addr 0 0 2); PowerCut [w]; Remap None 2 (Some 0) 5 (Addr 0 0 1) 0].
Lemma without_segment_zeroed :
  loses (without SegmentZeroed) segment_zeroed [w; x] 1 = true
  /\ refused_at 8 segment_zeroed = true.
Proof. vm_compute; auto. Qed.

(** The entry is zeroed, and the write that superseded it is missing. *)
Definition clear_waits := shared ++ [Write None 1 6 (Addr 0 0 2); ZeroWords [EntA 0]].
Lemma without_clear_waits :
  loses (without ClearWaits) clear_waits [x; w] 1 = true /\ no_such_cut clear_waits [x; w] = true.
Proof. vm_compute; auto. Qed.

(** An entry of the superblock's former incarnation names its new page. *)
Definition stale_segments := shared ++
  [Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); Reenter 1 2 (Addr 1 0 1) 1; MarkDead 0; EraseBlock 0 0;
   OpenSuperblock 0 []; Write None 2 9 (Addr 0 0 1)].
Lemma without_stale_segments :
  loses (without StaleSegments) stale_segments [w; w; w; w; w; w; w] 1 = true
  /\ survives stale_segments [w; w; w; w; w; w; w] 1 = true.
Proof. vm_compute; auto. Qed.

(** The page moves with one of its owners. *)
Definition other_references := shared ++ [Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); MarkDead 0].
Lemma without_other_references :
  loses (without OtherReferences) other_references [w; w] 1 = true
  /\ refused_at 7 other_references = true.
Proof. vm_compute; auto. Qed.

(** An acknowledged deallocation without a record. *)
Definition deallocations := one_page ++ [Deallocate None 0 1 0 None; Acknowledge 2].
Lemma without_deallocations :
  loses (without Deallocations) deallocations [] 0 = true
  /\ refused_at 5 deallocations = true.
Proof. vm_compute; auto. Qed.

(** The record is zeroed, and the bitmap that replaces it is missing. *)
Definition dealloc_flush := one_page ++
  [Deallocate None 0 1 0 None; PowerCut [w; w]; Restate [0] 0 (Addr 0 0 2); ZeroWords [DeaA 0]].
Lemma without_dealloc_flush :
  loses (without DeallocFlush) dealloc_flush [x; w] 0 = true /\ no_such_cut dealloc_flush [x; w] = true.
Proof. vm_compute; auto. Qed.

(** The source of a relocation is deallocated, and the target has no page. *)
Definition gathered_first := one_page ++
  [Remap None 1 (Some 0) 5 (Addr 0 0 1) 0; Deallocate None 0 1 0 (Some 2)].
Lemma without_gathered_first :
  loses (without GatheredFirst) gathered_first [x; x; w; w] 0 = true
  /\ no_such_cut gathered_first [x; x; w; w] = true.
Proof. vm_compute; auto. Qed.

(** A write that repeats one that is not durable. *)
Definition no_effect_waits :=
  [OpenSuperblock 0 []; PowerCut [w]; Write None 0 5 (Addr 0 0 1); NoEffect 0 5].
Lemma without_no_effect_waits :
  loses (without NoEffectWaits) no_effect_waits [x] 0 = true
  /\ refused_at 3 no_effect_waits = true.
Proof. vm_compute; auto. Qed.

(** Half a write of two pages. *)
Definition untorn_writes := one_page ++
  [Begin 0; Write (Some 2) 0 6 (Addr 0 0 2); Write (Some 2) 1 7 (Addr 1 0 1); Commit 2].
Lemma without_untorn_writes :
  loses (without UntornWrites) untorn_writes [w; x] 0 = true
  /\ survives untorn_writes [w; w; x; x] 0 = true.
Proof. vm_compute; auto. Qed.

(** A page of the write lands before the word that names it. *)
Definition open_before_pages := one_page ++ [Begin 0; Write (Some 2) 0 6 (Addr 0 0 2)].
Lemma without_open_before_pages :
  loses (without OpenBeforePages) open_before_pages [x; w] 0 = true
  /\ no_such_cut open_before_pages [x; w] = true.
Proof. vm_compute; auto. Qed.

(** The write ends, and one of its pages is missing. *)
Lemma without_commit_after_pages :
  loses (without CommitAfterPages) untorn_writes [w; w; x; w] 0 = true
  /\ no_such_cut untorn_writes [w; w; x; w] = true.
Proof. vm_compute; auto. Qed.

(** Two LPNs are remapped as one command (number 3, word 0). *)
Definition atomic_remap :=
  [OpenSuperblock 0 []; Write None 0 5 (Addr 0 0 1); Write None 3 6 (Addr 0 0 2); OpenSuperblock 1 [];
   PowerCut [w; w; w; w];
   Begin 0; Remap (Some 3) 1 (Some 0) 5 (Addr 0 0 1) 0; Remap (Some 3) 2 (Some 3) 6 (Addr 0 0 2) 1;
   Commit 3].

(** Collection copies the page for one of them, with the number of its entry. *)
Definition moved_after_writes := atomic_remap ++ [Copy [1] 3 (Addr 0 0 1) (Addr 1 0 1)].
Lemma without_moved_after_writes :
  loses (without MovedAfterWrites) moved_after_writes [x; x; x; x; x; x; w] 1 = true
  /\ no_such_cut moved_after_writes [x; x; x; x; x; x; w] = true.
Proof. vm_compute; auto. Qed.

(** The page is written for one of them with a new number. *)
Definition restated_after_writes := atomic_remap ++ [Restate [1] 5 (Addr 1 0 1)].
Lemma restated_without_moved_after_writes :
  loses (without MovedAfterWrites) restated_after_writes [x; x; x; x; x; x; w] 1 = true
  /\ no_such_cut restated_after_writes [x; x; x; x; x; x; w] = true.
Proof. vm_compute; auto. Qed.

(** The copy has its page's number, and LPN 1 is an other owner: its entry is stored again. *)
Definition fence_after_commit := atomic_remap ++
  [Copy [0] 1 (Addr 0 0 1) (Addr 1 0 1); Reenter 1 3 (Addr 1 0 1) 2].
Lemma without_fence_after_commit :
  loses (without FenceAfterCommit) fence_after_commit [x; x; x; x; x; x; w; w; w] 1 = true
  /\ no_such_cut fence_after_commit [x; x; x; x; x; x; w; w; w] = true.
Proof. vm_compute; auto. Qed.

(** A page of a write in progress is collected as garbage; then the write ends. *)
Definition nothing_within := one_page ++
  [Begin 0; Write (Some 2) 0 6 (Addr 1 0 1); MarkDead 1; Commit 2;
   Complete 0; Complete 1; Complete 2; Complete 3; Acknowledge 2].
Lemma without_nothing_within :
  loses (without NothingWithin) nothing_within [w; w; w; w] 0 = true
  /\ refused_at 6 nothing_within = true.
Proof. vm_compute; auto. Qed.

(** Recovery empties the word, and the number is in no list. *)
Definition aborted_stay := one_page ++
  [Begin 0; Write (Some 2) 0 6 (Addr 0 0 2); PowerCut [w; w]; ClearOpen 0].
Lemma without_aborted_stay :
  loses (without AbortedStay) aborted_stay [w] 0 = true
  /\ refused_at 7 aborted_stay = true.
Proof. vm_compute; auto. Qed.

(** A new write takes the number of an aborted one. *)
Definition time_resumes := one_page ++
  [Begin 0; Write (Some 2) 0 6 (Addr 0 0 2); PowerCut [w; w];
   Write None 1 7 (Addr 1 0 1); Complete 0; Acknowledge 2].
Lemma without_time_resumes :
  loses (without TimeResumes) time_resumes [w] 1 = true
  /\ survives time_resumes [w] 1 = true.
Proof. vm_compute; auto. Qed.

(** ** All guards on: a device's life, with the cuts in it *)

(** Two LPNs share a page; a command of two pages is cut and aborted; the superblock is collected,
    erased and used again while an erase is still pending; the aborted number leaves the list. *)
Definition life_of_a_device := shared ++
  [Begin 0; Write (Some 3) 0 6 (Addr 0 0 2); Write (Some 3) 2 7 (Addr 1 0 1); PowerCut [w; x; w];
   ListAborted 0 3; PowerCut [x]; ListAborted 0 3; ClearOpen 0;
   Copy [0] 1 (Addr 0 0 1) (Addr 1 0 2); Reenter 1 2 (Addr 1 0 2) 1;
   MarkDead 0; EraseBlock 0 0; EraseBlock 0 1; OpenSuperblock 0 [];
   Write None 2 8 (Addr 0 0 1); OpenSuperblock 2 []; MarkDead 1].
Example a_device_lives :
  (* the last step is refused: the newest witnesses of LPN 0 and 1 are there *)
  refused_at 22 life_of_a_device = true
  /\ forallb (fun l => survives (firstn 22 life_of_a_device) [w; w; w; w; w; w; w; x; w; w; x] l)
             (seq 0 4) = true.
Proof. vm_compute; auto. Qed.
