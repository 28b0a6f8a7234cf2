(** * A checker of what the firmware did

    Idea. A trace of the Rust firmware is a list of steps of the model, each with
    what its operations wait for on the real medium. [take] accepts a step if the
    model allows it and if these waits include, directly or through others, all
    that the model demands. So no cut of the traced operations is left out in the
    model ([f_cuts] of AcceptOk.v), and the theorems hold for the trace.

    [fstep] is [step] with the tables that it needs computed once. It is what is
    extracted. *)

From Coq Require Import List Arith Bool Lia Morphisms MSetAVL FMapAVL OrderedTypeEx.
Import ListNotations.
From Proof Require Import Media Recovery Firmware.

(** Numbers in order, with no more of arithmetic than sets need. *)
Module Key.
  Definition t := nat.
  Definition eq := @Logic.eq nat.
  Definition eq_equiv : Equivalence eq := eq_equivalence.
  Definition lt := Peano.lt.
  Definition lt_strorder : StrictOrder lt := Nat.lt_strorder.
  Lemma lt_compat : Proper (eq ==> eq ==> iff) lt.
  Proof. intros x y -> u v ->; reflexivity. Qed.
  Definition compare := Nat.compare.
  Definition compare_spec := Nat.compare_spec.
  Definition eq_dec := Nat.eq_dec.
End Key.

Module NS := MSetAVL.Make Key.
Module NM := FMapAVL.Make OrderedTypeEx.Nat_as_OT.

Section Accept.
Variable D : device.

(** ** What recovery finds, for all LPNs at once *)

Definition fvisible (img : image) : list witness :=
  let h := hidden D img in filter (fun w => negb (mem (w_num w) h)) (raw D img).

Definition table := NM.t (wsn * content).
Definition add_witness (t : table) (w : witness) : table :=
  match NM.find (w_lpn w) t with
  | Some (n, _) => if n <? w_num w then NM.add (w_lpn w) (w_num w, w_content w) t else t
  | None => NM.add (w_lpn w) (w_num w, w_content w) t
  end.
Definition table_of (img : image) : table :=
  fold_left add_witness (fvisible img) (NM.empty _).
Definition t_newest (t : table) (l : lpn) : wsn :=
  match NM.find l t with Some (n, _) => n | None => 0 end.
Definition t_read (t : table) (l : lpn) : content :=
  match NM.find l t with Some (_, c) => c | None => 0 end.

Definition fkeeps (before after : image) (ls : list lpn) : bool :=
  match ls with
  | [] => true
  | _ => let b := table_of before in let a := table_of after in
         forallb (fun l => t_newest b l <=? t_newest a l) ls
  end.

Definition shows (img : image) (l : lpn) (n : wsn) (c : content) : bool :=
  existsb (fun w => (w_lpn w =? l) && (w_num w =? n) && (w_content w =? c)) (fvisible img).

(** ** [step], faster *)

Definition fstep (img : image) (st : state) (act : action) (extra : list nat) : option state :=
  let p := pend st in
  match act with
  | OpenSuperblock sb kept =>
      let a := head_at sb in
      check (in_range D a && is_erased (cells img a) && stay_free D img sb kept)
        (Some (put_pend st
          (issue (Program a (Head (life img sb)))
                 (extra ++ touching (KWord (Life sb)) p
                  ++ if_on D ReserveStaysFree (flat_map (free_waits p) kept)) p)))

  | Write m l c a =>
      match number D st m [l] with
      | Some (n, ws) =>
          check (is_free_page D img a)
            (Some (put_claims
              (put_pend st (issue (Program a (Data [l] n (life img (sb_of a)) c))
                                  (extra ++ ws ++ data_waits D p a) p))
              m [Claim l n c [length p] false None]))
      | None => None
      end

  | Remap m l src c a s =>
      match number D st m [l], data_at D img a with
      | Some (n, ws), Some (_, _, c') =>
          check ((c' =? c) && match src with Some l' => t_read (table_of img) l' =? c | None => true end
                 && is_free_slot D img s)
            (let i := life img (sb_of a) in
             let ws := extra ++ ws ++ if_on D EntryAfterPage (place_waits p a)
                       ++ if_on D SegmentZeroed (slot_waits p s) in
             Some (put_claims
               (put_pend st (issue (Store (EntB s) (Name l)) ws
                            (issue (Store (EntA s) (Place n a i)) ws p)))
               m [Claim l n c [length p; S (length p)] false None]))
      | _, _ => None
      end

  | Deallocate m first len s after =>
      match number D st m (seq first len) with
      | Some (n, ws) =>
          check ((s <? slots D) && is_zero (words img (DeaA s)) && is_zero (words img (DeaB s))
                 && is_claimed (claims st) after)
            (let ws := extra ++ ws ++ touching (KWord (DeaA s)) p
                       ++ touching (KWord (DeaB s)) p
                       ++ if_on D GatheredFirst (needs_of (claims st) after) in
             let claim needs l := Claim l n 0 needs true after in
             if has D Deallocations then
               Some (put_claims
                 (put_pend st (issue (Store (DeaB s) (Range first len)) ws
                              (issue (Store (DeaA s) (Num n)) ws p)))
                 m (map (claim [length p; S (length p)]) (seq first len)))
             else Some (put_claims st m (map (claim []) (seq first len))))
      | None => None
      end

  | Copy ls n a a' =>
      match data_at D img a with
      | Some (names, n0, c) =>
          let own := (n0 =? n) && forallb (fun l => mem l names) ls in
          (* A page shows its own names, unless its number does not count. *)
          check (is_free_page D img a'
                 && (own && in_range D a && negb (mem n (hidden D img))
                     || forallb (fun l => shows img l n c) ls))
            (Some (put_pend st
              (issue (Program a' (Data ls n (life img (sb_of a')) c))
                     (extra ++ place_waits p a ++ data_waits D p a'
                      ++ if own then [] else if_on D MovedAfterWrites (ends (claims st) n)) p)))
      | None => None
      end

  | Reenter l n a s =>
      match data_at D img a with
      | Some (_, _, c) =>
          check (is_free_slot D img s && shows img l n c)
            (let ws := extra ++ if_on D EntryAfterPage (place_waits p a)
                       ++ if_on D SegmentZeroed (slot_waits p s)
                       ++ if_on D FenceAfterCommit (ends (claims st) n) in
             Some (put_pend st (issue (Store (EntB s) (Name l)) ws
                          (issue (Store (EntA s) (Place n a (life img (sb_of a)))) ws p))))
      | None => None
      end

  | Restate ls c a =>
      let n := S (clock st) in
      let t := table_of img in
      check (is_free_page D img a && forallb (fun l => t_read t l =? c) ls
             && quiet D st)
        (Some (put_claims
          (put_pend st (issue (Program a (Data ls n (life img (sb_of a)) c))
                              (extra ++ data_waits D p a
                               ++ if_on D MovedAfterWrites (everything p)) p))
          None (map (fun l => Claim l n c [length p] true (some (t_newest t l))) ls)))

  | ZeroWords ws =>
      let waits w := extra ++ match zero_guard w with
                              | Some g => if_on D g (everything p)
                              | None => []
                              end in
      check (forallb is_record ws && quiet D st
             && fkeeps img (zero_all img ws) (flat_map (named_by D img) ws))
        (Some (put_pend st (clear ws waits p)))

  | MarkDead sb =>
      let o := Store (Life sb) (Num (S (life img sb))) in
      check (has D DeadBeforeErase
             && quiet D st
             && fkeeps img (land img o Whole) (owners D img sb))
        (Some (put_pend st (issue o (extra ++ if_on D EraseWaits (everything p)) p)))

  | EraseBlock sb blk =>
      let o := Erase sb blk in
      if has D DeadBeforeErase then
        check (stale_block D img sb blk)
          (Some (put_pend st
            (issue o (extra ++ if_on D EraseWaits (touching (KWord (Life sb)) p)) p)))
      else
        check (quiet D st
               && fkeeps img (land img o Whole) (owners D img sb))
          (Some (put_pend st (issue o (extra ++ if_on D EraseWaits (everything p)) p)))

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
                     (extra ++ if_on D AbortedStay
                       (flat_map (fun j => touching (KWord (AbortW j)) p)
                                 (seq 0 (open_words D)))) p)))
      | _ => None
      end

  | Unlist k =>
      match words img (AbortW k) with
      | Num n =>
          check (negb (has D AbortedStay) || negb (existsb (fun w => w_num w =? n) (raw D img)))
            (Some (put_pend st (issue (Store (AbortW k) Zero)
                                      (extra ++ if_on D AbortedStay (positions bears p)) p)))
      | _ => None
      end

  | Begin k =>
      let n := S (clock st) in
      check ((k <? open_words D) && is_zero (words img (OpenW k))
             && forallb (fun r => negb (snd r =? k)) (running st))
        (Some (State (base st)
          (if has D UntornWrites then issue (Store (OpenW k) (Num n)) extra p else p)
          n ((n, k) :: running st) ((n, k) :: opened st) (gone st)
          (claims st) (drafts st) (floor st)))

  | Pad a =>
      check (is_free_page D img a)
        (Some (put_pend st (issue (Program a (Data [] 0 (life img (sb_of a)) 0))
                                  (extra ++ data_waits D p a) p)))

  | NoEffect l c =>
      let t := table_of img in
      let n := t_newest t l in
      check ((t_read t l =? c)
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
         let t := table_of img' in
         let h := hidden D img' in
         Some (State img' [] (largest D img') [] [] h
           (flat_map (fun c =>
              if (c_num c <=? t_newest t (c_lpn c)) && negb (mem (c_num c) h)
              then [Claim (c_lpn c) (c_num c) (c_content c) [] (c_multi c) None]
              else []) (claims st))
           [] (newest D img')))

  | Commit _ | GiveUp _ | Aside _ _ | Pass _ | Complete _ | Acknowledge _ =>
      step D st act extra
  end.

(** ** The trace *)

(** [t_pend]: the operations with the waits of the trace. [t_waits]: those that are not
    durable, newest first, each with what it waits for; [t_durable]: the others. *)
Record traced := Traced {
  t_st : state;
  t_img : image;
  t_pend : list pending;
  t_waits : list (nat * list nat);
  t_durable : NS.t
}.

Definition t_init : traced := Traced init blank [] [] NS.empty.

Definition add_all (s : NS.t) (l : list nat) : NS.t := fold_left (fun s i => NS.add i s) l s.

(** What lands before an operation that waits for [ws]. *)
Definition reach (t : list (nat * list nat)) (ws : list nat) : NS.t :=
  fold_left (fun need iw => if NS.mem (fst iw) need then add_all need (snd iw) else need) t
            (add_all NS.empty ws).

Definition covers (t : list (nat * list nat)) (done : NS.t) (own demanded : list nat) : bool :=
  let need := reach t own in
  forallb (fun r => NS.mem r done || NS.mem r need) demanded.

(** Appends operations; [also]: what the trace says that each relies on besides. *)
Fixpoint extend (tp : list pending) (t : list (nat * list nat)) (done : NS.t) (also : list nat)
    (new : list pending) (tws : list (list nat)) : option (list pending * list (nat * list nat)) :=
  match new, tws with
  | [], [] => Some (tp, t)
  | q :: new, ws :: tws =>
      let own := filter (fun i => i <? length tp) ws ++ positions (conflict (op q)) tp in
      if covers t done own (waits q ++ also)
      then extend (tp ++ [Pending (op q) own false]) ((length tp, own) :: t) done also new tws
      else None
  | _, _ => None
  end.

Fixpoint land_all (img : image) (new : list pending) : image :=
  match new with [] => img | q :: new => land_all (land img (op q) Whole) new end.

(** A step of the firmware. Completion, acknowledgement and the cut are below. *)
Definition take (t : traced) (act : action) (tws : list (list nat)) (after : list wsn) : option traced :=
  match act with
  | Complete _ | PowerCut _ => None
  | _ =>
    let st := t_st t in
    match fstep (t_img t) st act [] with
    | Some st' =>
        let new := skipn (length (pend st)) (pend st') in
        let also := if_on D GatheredFirst (flat_map (fun n => needs_of (claims st) (Some n)) after) in
        match extend (t_pend t) (t_waits t) (t_durable t) also new tws with
        | Some (tp, tw) => Some (Traced st' (land_all (t_img t) new) tp tw (t_durable t))
        | None => None
        end
    | None => None
    end
  end.

Definition complete (t : traced) (i : nat) : option traced :=
  match step D (t_st t) (Complete i) [] with
  | Some st' => Some (Traced st' (t_img t) (mark_durable (t_pend t) i)
                       (filter (fun iw => negb (fst iw =? i)) (t_waits t)) (NS.add i (t_durable t)))
  | None => None
  end.

(** A cut that the trace's order allows. *)
Definition cut (t : traced) (outs : list outcome) : option traced :=
  if may_cut (t_pend t) outs then
    match fstep (t_img t) (t_st t) (PowerCut outs) [] with
    | Some st' => Some (Traced st' (base st') [] [] NS.empty)
    | None => None
    end
  else None.

(** Everything is durable, and no command is in progress: as after a cut that loses nothing. *)
Definition rest (t : traced) : option traced :=
  match running (t_st t) with
  | [] => if forallb durable (t_pend t) then cut t (all_whole (t_pend t)) else None
  | _ => None
  end.

(** A command left LPN [l] with content [c] as it was; [n] was its newest number. It relies
    on a claim that is durable, and that later ones up to [n] repeat. *)
Definition unchanged (t : traced) (l : lpn) (c : content) (n : wsn) : option traced :=
  let st := t_st t in
  let mine := filter (fun cl => (c_lpn cl =? l) && (c_num cl <=? n)) (claims st) in
  let is_enough m :=
    forallb (fun cl => (c_num cl <? m) || (c_content cl =? c)) mine
    && (negb (has D NoEffectWaits)
        || forallb (fun cl => negb (c_num cl =? m) || all_durable (pend st) (c_needs cl)) (claims st)) in
  match find (fun cl => is_enough (c_num cl)) mine with
  | Some cl => if has D NoEffectWaits then take t (Acknowledge (c_num cl)) [] [] else Some t
  | None => (* It was zero from the beginning. *)
            if forallb (fun cl => c_content cl =? 0) mine && (c =? 0) then Some t else None
  end.

(** Recovery, or the tables, show these contents. *)
Definition shown (t : traced) (cs : list (lpn * content)) : bool :=
  let tab := table_of (t_img t) in
  forallb (fun lc => t_read tab (fst lc) =? snd lc) cs.

End Accept.
