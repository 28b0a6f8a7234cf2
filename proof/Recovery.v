(** * Recovery: the newest witness of each LPN

    Idea. A witness says "this LPN has this content since this number". Three
    kinds: the OOB of a data page, an entry in NVRAM that names a page (so that
    several LPNs share it), and a record of a deallocation. Recovery reads all of
    them, ignores those of a stale incarnation and those whose number belongs to
    a command in progress or aborted, and takes the largest number of each LPN.

    Recovery only reads. What it stores afterwards (the list of aborted numbers)
    are ordinary steps of the firmware, so that a cut during recovery is a cut
    like any other.

    Absent: tails, damage (unreadable words), the tie-break between a page and
    its copy: the model proves that it does not matter. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media.

(** The guards, with the names of [crates/ftl/src/config/guard.rs]. The last two
    are orders that the firmware keeps without a name: see docs/proof.md. *)
Inductive guard :=
| EraseWaits | DeadBeforeErase | ReserveStaysFree | HeadBeforeData | Incarnations
| EntryAfterPage | TornBits | SegmentZeroed | ClearWaits | StaleSegments
| OtherReferences | Deallocations | DeallocFlush | GatheredFirst | NoEffectWaits
| UntornWrites | OpenBeforePages | CommitAfterPages | MovedAfterWrites
| AbortedStay | TimeResumes
| FenceAfterCommit | NothingWithin.

(** A device: its guards that are on, and its size. *)
Record device := Device {
  has : guard -> bool;
  superblocks : nat; blocks : nat; pages : nat;
  slots : nat;      (* for entries, and as many for deallocations *)
  open_words : nat; (* and as many places in the list of aborted commands *)
  reserve : nat     (* superblocks that stay free for collection *)
}.

Record witness := W { w_lpn : lpn; w_num : wsn; w_content : content }.

Section Recovery.
Variable D : device.

Definition life (img : image) (sb : nat) : incarnation :=
  match words img (Life sb) with Num d => d | _ => 0 end.

Definition present (img : image) (sb : nat) (i : incarnation) : bool :=
  negb (has D Incarnations) || (i =? life img sb).

(** The head is the first page of the first block. *)
Definition head_at (sb : nat) : addr := Addr sb 0 0.

Definition head_ok (img : image) (sb : nat) : bool :=
  match cells img (head_at sb) with
  | Page (Head i) => present img sb i
  | _ => false
  end.

(** Content of a data page that counts as a place: readable, of the present
    incarnation, in a superblock with a head. *)
Definition data_at (img : image) (a : addr) : option (list lpn * wsn * content) :=
  match cells img a with
  | Page (Data names n i c) =>
      if head_ok img (sb_of a) && present img (sb_of a) i then Some (names, n, c) else None
  | _ => None
  end.

Definition of_page (img : image) (a : addr) : list witness :=
  match data_at img a with
  | Some (names, n, c) => map (fun l => W l n c) names
  | None => []
  end.

(** An entry whose second word is missing would name LPN 0. *)
Definition entry_at (img : image) (s : nat) : option (lpn * wsn * addr * incarnation) :=
  match words img (EntA s), words img (EntB s) with
  | Place n a i, Name l => Some (l, n, a, i)
  | Place n a i, Zero => if has D TornBits then None else Some (0, n, a, i)
  | _, _ => None
  end.

Definition of_entry (img : image) (s : nat) : list witness :=
  match entry_at img s with
  | Some (l, n, a, i) =>
      if negb (has D StaleSegments) || (i =? life img (sb_of a)) then
        match data_at img a with Some (_, _, c) => [W l n c] | None => [] end
      else []
  | None => []
  end.

Definition of_record (img : image) (s : nat) : list witness :=
  match words img (DeaA s), words img (DeaB s) with
  | Num n, Range first len => map (fun l => W l n 0) (seq first len)
  | _, _ => []
  end.

Definition addrs : list addr :=
  flat_map (fun sb => flat_map (fun b => map (Addr sb b) (seq 0 (pages D)))
                               (seq 0 (blocks D)))
           (seq 0 (superblocks D)).

(** All witnesses, whether their commands count or not. *)
Definition raw (img : image) : list witness :=
  flat_map (of_page img) addrs
  ++ flat_map (of_entry img) (seq 0 (slots D))
  ++ flat_map (of_record img) (seq 0 (slots D)).

Definition num_of (v : word) : list wsn := match v with Num n => [n] | _ => [] end.

(** Numbers that do not count: of commands in progress and of aborted ones. *)
Definition hidden (img : image) : list wsn :=
  flat_map (fun k => num_of (words img (OpenW k))) (seq 0 (open_words D))
  ++ flat_map (fun k => num_of (words img (AbortW k))) (seq 0 (open_words D)).

Definition mem (n : nat) (l : list nat) : bool := existsb (Nat.eqb n) l.

Definition visible (img : image) : list witness :=
  filter (fun w => negb (mem (w_num w) (hidden img))) (raw img).

(** The number of an LPN's newest witness; 0 if it has none. *)
Definition newest (img : image) (l : lpn) : wsn :=
  list_max (map w_num (filter (fun w => w_lpn w =? l) (visible img))).

(** What the host reads after recovery. *)
Definition read (img : image) (l : lpn) : content :=
  match find (fun w => (w_lpn w =? l) && (w_num w =? newest img l)) (visible img) with
  | Some w => w_content w
  | None => 0
  end.

(** The largest number found, of whatever kind. *)
Definition largest (img : image) : wsn :=
  list_max (map w_num (if has D TimeResumes then raw img else visible img)
            ++ (if has D TimeResumes then hidden img else [])).

(** The LPNs that a step may concern: none of them may lose its newest witness. *)
Definition keeps (before after : image) (ls : list lpn) : bool :=
  forallb (fun l => newest before l <=? newest after l) ls.

Definition in_range (a : addr) : bool :=
  (sb_of a <? superblocks D) && (blk_of a <? blocks D) && (off_of a <? pages D).

End Recovery.
