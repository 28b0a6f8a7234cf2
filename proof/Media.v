(** * The media, and what a power cut leaves of them

    Idea. Flash pages and 8-byte words of NVRAM change by three operations: the
    program of a page, the erase of a block, the store of a word. The firmware
    issues operations; each names the ones that must be durable before it. A
    power cut leaves the image that was durable before, and of the operations
    issued since a subset that is closed downwards in this order. Those on top
    may be torn: a torn program leaves an unreadable page, a torn erase an
    unreadable block. A store is whole or absent.

    Invariants. Operations on one block, and stores to one word, keep their
    order ([conflict]). [view] lets the landed ones land in the order of issue,
    which does not matter ([landing_commutes] in Order.v).

    Absent: word lines (a cut may tear earlier pages), bad blocks, bit errors.
    A clearing of a range is one store of zero for each word. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.

(** Logical page number; sequence number (virtual time); incarnation of a
    superblock; content of a page. Content 0 is zeroes. *)
Definition lpn := nat.
Definition wsn := nat.
Definition incarnation := nat.
Definition content := nat.

(** A flash page: superblock, block in it, page in that. *)
Record addr := Addr { sb_of : nat; blk_of : nat; off_of : nat }.

(** What a program leaves: a superblock's head, or data with its OOB. The OOB of
    a data page names LPNs: one for most pages, several for a page that states
    the same of many (a bitmap of deallocations), two under WAL-SSD. *)
Inductive page :=
| Head (i : incarnation)
| Data (names : list lpn) (n : wsn) (i : incarnation) (c : content).

Definition inc_of (p : page) : incarnation :=
  match p with Head i => i | Data _ _ i _ => i end.

Inductive cell := Erased | Torn | Page (p : page).

(** Words of NVRAM. An entry is two words, each of which lands alone; so is a
    record of a deallocation. *)
Inductive loc :=
| Life (sb : nat)     (* the incarnation of a superblock that counts *)
| EntA (slot : nat) | EntB (slot : nat)
| DeaA (slot : nat) | DeaB (slot : nat)
| OpenW (k : nat)     (* the number of a command in progress *)
| AbortW (k : nat)    (* the list of aborted commands *)
| Other (k : nat).    (* any other word: recovery finds no witness there *)

Inductive word :=
| Zero
| Num (n : nat)                                  (* in Life, OpenW, AbortW, DeaA *)
| Place (n : wsn) (a : addr) (i : incarnation)   (* first word of an entry *)
| Name (l : lpn)                                 (* second word of an entry *)
| Range (first len : nat).                       (* second word of a record *)

Definition addr_dec : forall x y : addr, {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.
Definition loc_dec : forall x y : loc, {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.

Arguments addr_dec : simpl never.
Arguments loc_dec : simpl never.

Record image := Image { cells : addr -> cell; words : loc -> word }.

(** A new device: nothing programmed, all words zero. *)
Definition blank : image := Image (fun _ => Erased) (fun _ => Zero).

Inductive mop :=
| Program (a : addr) (p : page)
| Erase (sb blk : nat)
| Store (w : loc) (v : word).

Inductive outcome := Whole | Absent | TornUp.

Definition in_block (sb blk : nat) (a : addr) : bool :=
  (sb_of a =? sb) && (blk_of a =? blk).

Definition set_cell (a : addr) (c : cell) (img : image) : image :=
  Image (fun x => if addr_dec x a then c else cells img x) (words img).
Definition set_block (sb blk : nat) (c : cell) (img : image) : image :=
  Image (fun x => if in_block sb blk x then c else cells img x) (words img).
Definition set_word (w : loc) (v : word) (img : image) : image :=
  Image (cells img) (fun x => if loc_dec x w then v else words img x).

(** What becomes of the image. A page that is programmed twice is unreadable. *)
Definition land (img : image) (op : mop) (o : outcome) : image :=
  match op, o with
  | _, Absent => img
  | Program a p, Whole =>
      match cells img a with
      | Erased => set_cell a (Page p) img
      | _ => set_cell a Torn img
      end
  | Program a _, TornUp => set_cell a Torn img
  | Erase sb blk, Whole => set_block sb blk Erased img
  | Erase sb blk, TornUp => set_block sb blk Torn img
  | Store w v, Whole => set_word w v img
  | Store _ _, TornUp => img
  end.

(** ** Pending operations *)

(** [waits]: positions of the operations that land before it. [durable]: it has
    completed, so no cut undoes it. *)
Record pending := Pending { op : mop; waits : list nat; durable : bool }.

Definition landed (outs : list outcome) (j : nat) : Prop :=
  nth_error outs j = Some Whole.
Definition landedb (outs : list outcome) (j : nat) : bool :=
  match nth_error outs j with Some Whole => true | _ => false end.

Definition is_store (o : mop) : bool :=
  match o with Store _ _ => true | _ => false end.

(** The rule of the medium for one operation: it begins only after all that it
    waits for; what has completed stays; a store is atomic. *)
Definition may_end (outs : list outcome) (po : pending * outcome) : bool :=
  let (p, o) := po in
  match o with
  | Absent => negb (durable p)
  | Whole => forallb (landedb outs) (waits p)
  | TornUp => negb (durable p) && negb (is_store (op p)) && forallb (landedb outs) (waits p)
  end.

(** The outcomes that a cut may leave: the "downward-closed subset, torn on top". *)
Definition may_cut (pend : list pending) (outs : list outcome) : bool :=
  (length pend =? length outs) && forallb (may_end outs) (combine pend outs).

(** The image that a cut leaves. *)
Definition view (base : image) (pend : list pending) (outs : list outcome) : image :=
  fold_left (fun img po => land img (op (fst po)) (snd po)) (combine pend outs) base.

(** What the firmware's tables describe: the image once all has landed. *)
Definition all_whole (pend : list pending) : list outcome := map (fun _ => Whole) pend.
Definition now (base : image) (pend : list pending) : image :=
  view base pend (all_whole pend).

(** ** Keys: what an operation touches *)

Inductive key := KCell (a : addr) | KWord (w : loc).

Definition touches (o : mop) (k : key) : bool :=
  match o, k with
  | Program a _, KCell x => if addr_dec x a then true else false
  | Erase sb blk, KCell x => in_block sb blk x
  | Store w _, KWord x => if loc_dec x w then true else false
  | _, _ => false
  end.

(** The medium's own order: one block, one word. *)
Definition conflict (x y : mop) : bool :=
  match x, y with
  | Program a _, Program b _ => in_block (sb_of a) (blk_of a) b
  | Program a _, Erase sb blk => in_block sb blk a
  | Erase sb blk, Program a _ => in_block sb blk a
  | Erase sb blk, Erase sb' blk' => (sb =? sb') && (blk =? blk')
  | Store w _, Store w' _ => if loc_dec w w' then true else false
  | _, _ => false
  end.

(** Positions of the pending operations that a test selects. *)
Fixpoint positions_from (i : nat) (f : mop -> bool) (pend : list pending) : list nat :=
  match pend with
  | [] => []
  | p :: rest => if f (op p) then i :: positions_from (S i) f rest else positions_from (S i) f rest
  end.
Definition positions : (mop -> bool) -> list pending -> list nat := positions_from 0.

Definition touching (k : key) : list pending -> list nat :=
  positions (fun o => touches o k).
Definition everything : list pending -> list nat := positions (fun _ => true).

(** A new pending operation. [ws]: what the firmware names; beyond that, the
    medium's order. *)
Definition issue (o : mop) (ws : list nat) (pend : list pending) : list pending :=
  pend ++ [Pending o (filter (fun i => i <? length pend) ws
                      ++ positions (conflict o) pend) false].
