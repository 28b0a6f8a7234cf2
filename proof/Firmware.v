(** * The firmware: what it may do, and what it must wait for

    Idea. [step] is one action of the firmware or of the power supply; [None]
    means that a guard refuses it. Everything that a scheme, an allocator or a
    collector decides (which page, when, which victim, what else to wait for) is
    an argument, so the theorems hold for each choice. A guard that is switched
    off drops its wait or its check and nothing else.

    Beside the media the state holds what only the proof needs:
    - [claims]: which operations together state "LPN l has content c since n";
    - [drafts]: the same for commands of several pages in progress;
    - [floor]: for each LPN the number that was acknowledged, or that a recovery
      has shown.

    Absent: time, streams, the write buffer, doubts after damage. *)

From Coq Require Import List Arith Bool Lia.
Import ListNotations.
From Proof Require Import Media Recovery.

(** [c_needs]: positions of the pending operations that must land before the claim
    counts. [c_multi]: it shares its number with claims of other LPNs. [c_after]:
    the command that it relies on. A deallocation of a relocation's source relies
    on the command that gave the target its page, a restatement on the one that
    it states again. *)
Record claim := Claim {
  c_lpn : lpn; c_num : wsn; c_content : content;
  c_needs : list nat; c_multi : bool; c_after : option wsn
}.

Record state := State {
  base : image;               (* durable when power came back *)
  pend : list pending;        (* issued since, oldest first *)
  clock : wsn;                (* largest number given out *)
  running : list (wsn * nat); (* commands in progress, each with its word *)
  opened : list (wsn * nat);  (* these and those that have ended since power-on *)
  gone : list wsn;            (* numbers of commands that were interrupted or given up *)
  claims : list claim;
  drafts : list claim;
  floor : lpn -> wsn
}.

Definition init : state := State blank [] 0 [] [] [] [] [] (fun _ => 0).

Definition image_now (st : state) : image := now (base st) (pend st).

Inductive action :=
(* superblocks *)
| OpenSuperblock (sb : nat) (kept : list nat) (* [kept]: those that stay free *)
| MarkDead (sb : nat)
| EraseBlock (sb blk : nat)
(* witnesses; [Some n]: of the command n in progress *)
| Write (m : option wsn) (l : lpn) (c : content) (a : addr)
| Remap (m : option wsn) (l : lpn) (src : option lpn) (c : content) (a : addr) (s : nat)
| Deallocate (m : option wsn) (first len s : nat) (after : option wsn)
(* commands of several pages *)
| Begin (k : nat)
| Commit (n : wsn)
| GiveUp (n : wsn)  (* refused halfway: from now on like a command that a cut interrupted *)
(* collection of flash and of NVRAM *)
| Copy (ls : list lpn) (n : wsn) (a a' : addr)
| Reenter (l : lpn) (n : wsn) (a : addr) (s : nat)
| Restate (ls : list lpn) (c : content) (a : addr)
| ZeroWords (ws : list loc) (* a clearing: any of them may land *)
(* the list of aborted commands *)
| ListAborted (k : nat) (n : wsn)
| ClearOpen (k : nat)
| Unlist (k : nat)
(* what the witnesses do not depend on: other pages (tails), other words, unused numbers *)
| Pad (a : addr)
| Aside (k v : nat)
| Pass (n : wsn)
(* the world *)
| Complete (i : nat)
| Acknowledge (n : wsn)
| NoEffect (l : lpn) (c : content)
| PowerCut (outs : list outcome).

Section Firmware.
Variable D : device.

(** The waits that a guard adds. *)
Definition if_on (g : guard) (ws : list nat) : list nat := if has D g then ws else [].

(** A page in place: readable, in a superblock that is open and not dead. *)
Definition place_waits (p : list pending) (a : addr) : list nat :=
  touching (KCell a) p ++ touching (KCell (head_at (sb_of a))) p
  ++ touching (KWord (Life (sb_of a))) p.

Definition slot_waits (p : list pending) (s : nat) : list nat :=
  touching (KWord (EntA s)) p ++ touching (KWord (EntB s)) p.

Definition data_waits (p : list pending) (a : addr) : list nat :=
  if_on HeadBeforeData (touching (KCell (head_at (sb_of a))) p)
  ++ touching (KWord (Life (sb_of a))) p.

(** What makes the witnesses of a command of several pages count. *)
Definition ends (cs : list claim) (n : wsn) : list nat :=
  flat_map c_needs (filter (fun c => (c_num c =? n) && c_multi c) cs).

Definition some (n : wsn) : option wsn := if n =? 0 then None else Some n.

(** What makes a command's witnesses count. *)
Definition needs_of (cs : list claim) (m : option wsn) : list nat :=
  match m with
  | Some a => flat_map c_needs (filter (fun c => c_num c =? a) cs)
  | None => []
  end.
Definition is_claimed (cs : list claim) (m : option wsn) : bool :=
  match m with Some a => existsb (fun c => c_num c =? a) cs | None => true end.

Definition is_zero (v : word) : bool := match v with Zero => true | _ => false end.
Definition is_erased (c : cell) : bool := match c with Erased => true | _ => false end.

Definition word_of (st : state) (n : wsn) : option nat :=
  match find (fun r => fst r =? n) (running st) with
  | Some (_, k) => Some k
  | None => None
  end.

(** The number of a witness: a new one, or that of a command in progress, which
    the LPN may be part of once. Its word comes first. *)
Definition number (st : state) (m : option wsn) (ls : list lpn) : option (wsn * list nat) :=
  match m with
  | None => Some (S (clock st), [])
  | Some n =>
      match word_of st n with
      | Some k =>
          if existsb (fun d => (c_num d =? n) && mem (c_lpn d) ls) (drafts st) then None
          else Some (n, if_on OpenBeforePages (touching (KWord (OpenW k)) (pend st)))
      | None => None
      end
  end.

Definition put_pend (st : state) (p : list pending) : state :=
  State (base st) p (clock st) (running st) (opened st) (gone st) (claims st) (drafts st) (floor st).

(** Claims of a new witness: of a command of its own, or drafts. *)
Definition put_claims (st : state) (m : option wsn) (cs : list claim) : state :=
  match m with
  | None => State (base st) (pend st) (S (clock st)) (running st) (opened st) (gone st)
                  (claims st ++ cs) (drafts st) (floor st)
  | Some _ => State (base st) (pend st) (clock st) (running st) (opened st) (gone st)
                    (claims st) (drafts st ++ cs) (floor st)
  end.

Definition check (b : bool) (st : option state) : option state := if b then st else None.

(** Nothing is reclaimed, and nothing stated again, within a command. *)
Definition quiet (st : state) : bool :=
  negb (has D NothingWithin) || match running st with [] => true | _ => false end.

(** Superblocks without a head of the present incarnation are free, erased or not. As many
    as the reserve has stay free, whatever a cut undoes. *)
Fixpoint distinct (l : list nat) : bool :=
  match l with [] => true | n :: rest => negb (mem n rest) && distinct rest end.
Definition stay_free (img : image) (sb : nat) (kept : list nat) : bool :=
  (reserve D <=? length kept) && distinct kept && negb (mem sb kept)
  && forallb (fun s => (s <? superblocks D) && negb (head_ok D img s)) kept.
Definition free_waits (p : list pending) (s : nat) : list nat :=
  touching (KWord (Life s)) p ++ touching (KCell (head_at s)) p.

(** An address where a data page may be programmed. *)
Definition is_free_page (img : image) (a : addr) : bool :=
  in_range D a && is_erased (cells img a) && head_ok D img (sb_of a)
  && (if addr_dec a (head_at (sb_of a)) then false else true).

Definition is_free_slot (img : image) (s : nat) : bool :=
  (s <? slots D)
  && (negb (has D SegmentZeroed)
      || is_zero (words img (EntA s)) && is_zero (words img (EntB s))).

Definition reads (img : image) (src : option lpn) (c : content) : bool :=
  match src with Some l => read D img l =? c | None => true end.

Definition is_visible (img : image) (l : lpn) (n : wsn) (c : content) : bool :=
  existsb (fun w => (w_lpn w =? l) && (w_num w =? n) && (w_content w =? c)) (visible D img).

(** Owners of a superblock's pages: those that OOBs name, and those that entries do. *)
Definition oob_owners (img : image) (sb : nat) : list lpn :=
  flat_map (fun a => if sb_of a =? sb then map w_lpn (of_page D img a) else []) (addrs D).
Definition entry_owners (img : image) (sb : nat) : list lpn :=
  flat_map (fun s => match entry_at D img s with
                     | Some (l, _, a, _) => if sb_of a =? sb then [l] else []
                     | None => []
                     end) (seq 0 (slots D)).
Definition owners (img : image) (sb : nat) : list lpn :=
  oob_owners img sb ++ if has D OtherReferences then entry_owners img sb else [].

(** The cells of a block, for the check before its erase. *)
Definition stale_block (img : image) (sb blk : nat) : bool :=
  forallb (fun a => negb (in_block sb blk a)
                    || match cells img a with
                       | Page p => negb (inc_of p =? life img sb)
                       | _ => true
                       end) (addrs D).

(** The LPN of a word that is about to be zeroed. *)
Definition named_by (img : image) (w : loc) : list lpn :=
  match w with
  | EntA s | EntB s => map w_lpn (of_entry D img s)
  | DeaA s | DeaB s => map w_lpn (of_record img s)
  | _ => []
  end.

Definition zero_all (img : image) (ws : list loc) : image :=
  fold_left (fun i w => set_word w Zero i) ws img.
Fixpoint clear (ws : list loc) (waits : loc -> list nat) (p : list pending) : list pending :=
  match ws with [] => p | w :: ws => clear ws waits (issue (Store w Zero) (waits w) p) end.

Definition zero_guard (w : loc) : option guard :=
  match w with
  | EntA _ | EntB _ => Some ClearWaits
  | DeaA _ | DeaB _ => Some DeallocFlush
  | _ => None
  end.

(** An operation that may change which witnesses there are. *)
Definition bears (o : mop) : bool :=
  match o with Store (OpenW _) _ | Store (AbortW _) _ | Store (Other _) _ => false | _ => true end.

Definition is_record (w : loc) : bool :=
  match zero_guard w with Some _ => true | None => false end.

Definition all_durable (p : list pending) (needs : list nat) : bool :=
  forallb (fun i => match nth_error p i with Some q => durable q | None => false end) needs.

Definition mark_durable (p : list pending) (i : nat) : list pending :=
  firstn i p ++ match nth_error p i with
                | Some q => [Pending (op q) (waits q) true]
                | None => []
                end ++ skipn (S i) p.

(** One step. [extra]: whatever else the scheme makes its operations wait for. *)
Definition step (st : state) (act : action) (extra : list nat) : option state :=
  let img := image_now st in
  let p := pend st in
  match act with
  | OpenSuperblock sb kept =>
      let a := head_at sb in
      check (in_range D a && is_erased (cells img a) && stay_free img sb kept)
        (Some (put_pend st
          (issue (Program a (Head (life img sb)))
                 (extra ++ touching (KWord (Life sb)) p
                  ++ if_on ReserveStaysFree (flat_map (free_waits p) kept)) p)))

  | Write m l c a =>
      match number st m [l] with
      | Some (n, ws) =>
          check (is_free_page img a)
            (Some (put_claims
              (put_pend st (issue (Program a (Data [l] n (life img (sb_of a)) c))
                                  (extra ++ ws ++ data_waits p a) p))
              m [Claim l n c [length p] false None]))
      | None => None
      end

  | Remap m l src c a s =>
      match number st m [l], data_at D img a with
      | Some (n, ws), Some (_, _, c') =>
          check ((c' =? c) && reads img src c && is_free_slot img s)
            (let i := life img (sb_of a) in
             let ws := extra ++ ws ++ if_on EntryAfterPage (place_waits p a)
                       ++ if_on SegmentZeroed (slot_waits p s) in
             Some (put_claims
               (put_pend st (issue (Store (EntB s) (Name l)) ws
                            (issue (Store (EntA s) (Place n a i)) ws p)))
               m [Claim l n c [length p; S (length p)] false None]))
      | _, _ => None
      end

  | Deallocate m first len s after =>
      match number st m (seq first len) with
      | Some (n, ws) =>
          check ((s <? slots D) && is_zero (words img (DeaA s)) && is_zero (words img (DeaB s))
                 && is_claimed (claims st) after)
            (let ws := extra ++ ws ++ touching (KWord (DeaA s)) p
                       ++ touching (KWord (DeaB s)) p
                       ++ if_on GatheredFirst (needs_of (claims st) after) in
             let claim needs l := Claim l n 0 needs true after in
             if has D Deallocations then
               Some (put_claims
                 (put_pend st (issue (Store (DeaB s) (Range first len)) ws
                              (issue (Store (DeaA s) (Num n)) ws p)))
                 m (map (claim [length p; S (length p)]) (seq first len)))
             else Some (put_claims st m (map (claim []) (seq first len))))
      | None => None
      end

  | Begin k =>
      let n := S (clock st) in
      check ((k <? open_words D) && is_zero (words img (OpenW k))
             && forallb (fun r => negb (snd r =? k)) (running st))
        (Some (State (base st)
          (if has D UntornWrites then issue (Store (OpenW k) (Num n)) extra p else p)
          n ((n, k) :: running st) ((n, k) :: opened st) (gone st)
          (claims st) (drafts st) (floor st)))

  | Commit n =>
      match word_of st n with
      | Some k =>
          let mine := filter (fun d => c_num d =? n) (drafts st) in
          let needs := flat_map c_needs mine in
          let until := if has D UntornWrites then needs ++ [length p] else needs in
          Some (State (base st)
            (if has D UntornWrites then
               issue (Store (OpenW k) Zero) (extra ++ if_on CommitAfterPages needs) p
             else p)
            (clock st) (filter (fun r => negb (fst r =? n)) (running st)) (opened st) (gone st)
            (claims st
             ++ map (fun d => Claim (c_lpn d) n (c_content d) until true None) mine)
            (filter (fun d => negb (c_num d =? n)) (drafts st)) (floor st))
      | None => None
      end

  | GiveUp n =>
      match word_of st n with
      | Some _ =>
          Some (State (base st) p (clock st)
            (filter (fun r => negb (fst r =? n)) (running st))
            (filter (fun r => negb (fst r =? n)) (opened st)) (n :: gone st) (claims st)
            (filter (fun d => negb (c_num d =? n)) (drafts st)) (floor st))
      | None => None
      end

  | Copy ls n a a' =>
      match data_at D img a with
      | Some (names, n0, c) =>
          let own := (n0 =? n) && forallb (fun l => mem l names) ls in
          check (is_free_page img a' && forallb (fun l => is_visible img l n c) ls)
            (Some (put_pend st
              (issue (Program a' (Data ls n (life img (sb_of a')) c))
                     (extra ++ place_waits p a ++ data_waits p a'
                      ++ if own then [] else if_on MovedAfterWrites (ends (claims st) n)) p)))
      | None => None
      end

  | Reenter l n a s =>
      match data_at D img a with
      | Some (_, _, c) =>
          check (is_free_slot img s && is_visible img l n c)
            (let ws := extra ++ if_on EntryAfterPage (place_waits p a)
                       ++ if_on SegmentZeroed (slot_waits p s)
                       ++ if_on FenceAfterCommit (ends (claims st) n) in
             Some (put_pend st (issue (Store (EntB s) (Name l)) ws
                          (issue (Store (EntA s) (Place n a (life img (sb_of a)))) ws p))))
      | None => None
      end

  | Restate ls c a =>
      let n := S (clock st) in
      check (is_free_page img a && forallb (fun l => read D img l =? c) ls
             && quiet st)
        (Some (put_claims
          (put_pend st (issue (Program a (Data ls n (life img (sb_of a)) c))
                              (extra ++ data_waits p a
                               ++ if_on MovedAfterWrites (everything p)) p))
          None (map (fun l => Claim l n c [length p] true (some (newest D img l))) ls)))

  | ZeroWords ws =>
      let waits w := extra ++ match zero_guard w with
                              | Some g => if_on g (everything p)
                              | None => []
                              end in
      check (forallb is_record ws && quiet st
             && keeps D img (zero_all img ws) (flat_map (named_by img) ws))
        (Some (put_pend st (clear ws waits p)))

  | MarkDead sb =>
      let o := Store (Life sb) (Num (S (life img sb))) in
      check (has D DeadBeforeErase
             && quiet st
             && keeps D img (land img o Whole) (owners img sb))
        (Some (put_pend st (issue o (extra ++ if_on EraseWaits (everything p)) p)))

  | EraseBlock sb blk =>
      let o := Erase sb blk in
      if has D DeadBeforeErase then
        check (stale_block img sb blk)
          (Some (put_pend st
            (issue o (extra ++ if_on EraseWaits (touching (KWord (Life sb)) p)) p)))
      else
        check (quiet st
               && keeps D img (land img o Whole) (owners img sb))
          (Some (put_pend st (issue o (extra ++ if_on EraseWaits (everything p)) p)))

  | ListAborted k n =>
      check ((k <? open_words D) && is_zero (words img (AbortW k)) && mem n (gone st))
        (Some (put_pend st (issue (Store (AbortW k) (Num n)) extra p)))

  | ClearOpen k =>
      match words img (OpenW k) with
      | Num n =>
          check (mem n (gone st)
                 && (negb (has D AbortedStay)
                     || existsb (fun j => mem n (num_of (words img (AbortW j))))
                                (seq 0 (open_words D))))
            (Some (put_pend st
              (issue (Store (OpenW k) Zero)
                     (extra ++ if_on AbortedStay
                       (flat_map (fun j => touching (KWord (AbortW j)) p)
                                 (seq 0 (open_words D)))) p)))
      | _ => None
      end

  | Unlist k =>
      match words img (AbortW k) with
      | Num n =>
          check (negb (has D AbortedStay) || negb (existsb (fun w => w_num w =? n) (raw D img)))
            (Some (put_pend st (issue (Store (AbortW k) Zero)
                                      (extra ++ if_on AbortedStay (positions bears p)) p)))
      | _ => None
      end

  | Pad a =>
      check (is_free_page img a)
        (Some (put_pend st (issue (Program a (Data [] 0 (life img (sb_of a)) 0))
                                  (extra ++ data_waits p a) p)))

  | Aside k v => Some (put_pend st (issue (Store (Other k) (Num v)) extra p))

  | Pass n =>
      Some (State (base st) p (Nat.max n (clock st)) (running st) (opened st) (gone st)
        (claims st) (drafts st) (floor st))

  | Complete i =>
      match nth_error p i with
      | Some q => check (all_durable p (waits q)) (Some (put_pend st (mark_durable p i)))
      | None => None
      end

  | Acknowledge n =>
      let mine := filter (fun c => c_num c =? n) (claims st) in
      check (forallb (fun c => all_durable p (c_needs c)) mine)
        (Some (State (base st) p (clock st) (running st) (opened st) (gone st)
          (claims st) (drafts st)
          (fun l => if mem l (map c_lpn mine) then Nat.max (floor st l) n else floor st l)))

  | NoEffect l c =>
      let n := newest D img l in
      check ((read D img l =? c)
             && ((n =? 0)
                 || existsb (fun cl => (c_lpn cl =? l) && (c_num cl =? n)
                                       && (negb (has D NoEffectWaits)
                                           || all_durable p (c_needs cl))) (claims st)))
        (Some (State (base st) p (clock st) (running st) (opened st) (gone st)
          (claims st) (drafts st)
          (fun x => if x =? l then Nat.max (floor st l) n else floor st x)))

  | PowerCut outs =>
      check (may_cut p outs)
        (let img' := view (base st) p outs in
         Some (State img' [] (largest D img') [] [] (hidden D img')
           (flat_map (fun c =>
              if (c_num c <=? newest D img' (c_lpn c)) && negb (mem (c_num c) (hidden D img'))
              then [Claim (c_lpn c) (c_num c) (c_content c) [] (c_multi c) None]
              else []) (claims st))
           [] (newest D img')))
  end.

Fixpoint run (st : state) (acts : list (action * list nat)) : option state :=
  match acts with
  | [] => Some st
  | (a, extra) :: rest =>
      match step st a extra with Some st' => run st' rest | None => None end
  end.

End Firmware.
