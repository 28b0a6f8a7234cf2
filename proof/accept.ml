(* Reads a trace of the firmware's steps (docs/proof.md) and lets the checker of Accept.v decide.

   Usage: accept [--guards] FILE...  ("-" is standard input). With --guards, a refused script is also checked from its beginning without
   each guard.

   Absent: rules. What this file chooses (the superblocks that stay free, which waits of "all" need to be named) can only make the
   checker refuse more. Exit codes: 0 all accepted, 1 a step is refused, 2 usage. *)

open Model

exception Malformed of string

let guards =
  [ ("erase-waits", EraseWaits); ("dead-before-erase", DeadBeforeErase);
    ("reserve-stays-free", ReserveStaysFree); ("head-before-data", HeadBeforeData);
    ("incarnations", Incarnations); ("entry-after-page", EntryAfterPage);
    ("torn-bits", TornBits); ("segment-zeroed", SegmentZeroed); ("clear-waits", ClearWaits);
    ("stale-segments", StaleSegments); ("other-references", OtherReferences);
    ("deallocations", Deallocations); ("dealloc-flush", DeallocFlush);
    ("gathered-first", GatheredFirst); ("no-effect-waits", NoEffectWaits);
    ("untorn-writes", UntornWrites); ("open-before-pages", OpenBeforePages);
    ("commit-after-pages", CommitAfterPages); ("moved-after-writes", MovedAfterWrites);
    ("aborted-stay", AbortedStay); ("time-resumes", TimeResumes);
    ("fence-after-commit", FenceAfterCommit); ("nothing-within", NothingWithin) ]

(* Beside the model's state: for each position whether it is a store, and what it waited for ("all" and "stores" below these); what
   LPNs had when a command left them as they were, and since which number. *)
module Notes = Map.Make (Int)

type position = { store : bool; all_below : int; stores_below : int }
type run = { device : device; lpns : int; traced : traced; positions : position list; count : int;
             notes : (int * int * int) Notes.t }

type verdict = Accepted of run | Refused of string

let ints words = List.map int_of_string words

let address text =
  match ints (String.split_on_char '.' text) with
  | [ sb; blk; off ] -> { sb_of = sb; blk_of = blk; off_of = off }
  | _ -> raise (Malformed text)

(* Positions of the operations that the words of one operation name. Of all below a position, those suffice that no later one of them
   waits for already. *)
let waits run words =
  let all = ref 0 and stores = ref 0 and named = ref [] in
  let read word =
    match String.index_opt word '<' with
    | Some at ->
        let bound = int_of_string (String.sub word (at + 1) (String.length word - at - 1)) in
        if word.[0] = 'a' then all := bound else stores := bound
    | None -> named := int_of_string word :: !named
  in
  List.iter read words;
  let rec pick at positions seen_all seen_stores found =
    match positions with
    | [] -> found
    | p :: rest ->
        if at < seen_all then found
        else
          let is_all = at < !all and is_store = p.store && at < !stores && at >= seen_stores in
          if is_all then pick (at - 1) rest (max seen_all p.all_below) (max seen_stores p.stores_below) (at :: found)
          else if is_store then pick (at - 1) rest (max seen_all p.all_below) (max seen_stores p.stores_below) (at :: found)
          else pick (at - 1) rest seen_all seen_stores found
  in
  (pick (run.count - 1) run.positions 0 0 !named, { store = false; all_below = !all; stores_below = !stores })

let rec split_on separator = function
  | [] -> [ [] ]
  | word :: rest when word = separator -> [] :: split_on separator rest
  | word :: rest -> (
      match split_on separator rest with
      | first :: others -> (word :: first) :: others
      | [] -> [ [ word ] ])

let mode run number text =
  (* A new number: those between are passed over. *)
  if text = '=' then (run, Some number)
  else if text <> '+' || run.traced.t_st.clock >= number then
    raise (Malformed (Printf.sprintf "number %d is not new" number))
  else
    match take run.device run.traced (Pass (number - 1)) [] [] with
    | Some traced -> ({ run with traced }, None)
    | None -> assert false

let kind_and_number text = (text.[0], int_of_string (String.sub text 1 (String.length text - 1)))

(* Superblocks that stay free: those without a head, first those whose deaths are surely durable. *)
let kept run sb own =
  let t = run.traced in
  let is_free s = s <> sb && not (head_ok run.device t.t_img s) in
  let rec candidates s = if s >= run.device.superblocks then [] else if is_free s then s :: candidates (s + 1) else candidates (s + 1) in
  let is_sure s = covers t.t_waits t.t_durable own (free_waits t.t_st.pend s) in
  let sure, others = List.partition is_sure (candidates 0) in
  List.filteri (fun at _ -> at < run.device.reserve) (sure @ others)

let word_of text =
  match String.split_on_char '.' text with
  | [ "e1"; slot ] -> EntA (int_of_string slot)
  | [ "e2"; slot ] -> EntB (int_of_string slot)
  | [ "d1"; slot ] -> DeaA (int_of_string slot)
  | [ "d2"; slot ] -> DeaB (int_of_string slot)
  | _ -> raise (Malformed text)

(* The action of a line, and the commands that it relies on. *)
let action run words own =
  let n = int_of_string in
  match words with
  | [ "open"; sb ] -> (run, OpenSuperblock (n sb, kept run (n sb) own), [])
  | [ "pad"; a ] -> (run, Pad (address a), [])
  | [ "write"; number; l; c; a ] ->
      let kind, number = kind_and_number number in
      let run, m = mode run number kind in
      (run, Write (m, n l, n c, address a), [])
  | [ "remap"; number; l; c; a; s ] ->
      let kind, number = kind_and_number number in
      let run, m = mode run number kind in
      (run, Remap (m, n l, None, n c, address a, n s), [])
  | "deallocate" :: number :: first :: len :: s :: after ->
      let kind, number = kind_and_number number in
      let run, m = mode run number kind in
      let after = ints after in
      let last = match List.rev after with [] -> None | last :: _ -> Some last in
      (run, Deallocate (m, n first, n len, n s, last), after)
  | [ "begin"; number; k ] ->
      let run, _ = mode run (n number) '+' in
      (run, Begin (n k), [])
  | [ "commit"; number ] -> (run, Commit (n number), [])
  | [ "give-up"; number ] -> (run, GiveUp (n number), [])
  | "copy" :: number :: a :: b :: names -> (run, Copy (ints names, n number, address a, address b), [])
  | [ "reenter"; number; l; a; s ] -> (run, Reenter (n l, n number, address a, n s), [])
  | "restate" :: number :: c :: a :: names ->
      let run, _ = mode run (n number) '+' in
      (run, Restate (ints names, n c, address a), [])
  | ("clear" | "zero") :: words -> (run, ZeroWords (List.map word_of words), [])
  | [ "die"; sb ] -> (run, MarkDead (n sb), [])
  | [ "erase"; sb; blk ] -> (run, EraseBlock (n sb, n blk), [])
  | [ "list"; k; number ] -> (run, ListAborted (n k, n number), [])
  | [ "clear-open"; k ] -> (run, ClearOpen (n k), [])
  | [ "unlist"; k ] -> (run, Unlist (n k), [])
  | [ "aside"; k ] -> (run, Aside (n k, 0), [])
  | _ -> raise (Malformed (String.concat " " words))

let step run line =
  let words, operations =
    match split_on ":" line with
    | [ words ] -> (words, [])
    | [ words; waits ] -> (words, split_on ";" waits)
    | _ -> raise (Malformed "two colons")
  in
  (* A fence does not wait for clearings. *)
  let store = not (List.mem (List.hd words) [ "open"; "pad"; "write"; "copy"; "restate"; "erase"; "clear" ]) in
  (* The second word of an entry may wait for the first. *)
  let next run operation =
    let named, position = waits run operation in
    ({ run with positions = { position with store } :: run.positions; count = run.count + 1 }, named)
  in
  let after, tws = List.fold_left_map next run operations in
  (* The words of a clearing wait for the same. *)
  let after, tws =
    match (words, tws) with
    | "clear" :: _ :: others, [ named ] ->
        let repeat = List.map (fun _ -> List.hd after.positions) others in
        ( { after with positions = repeat @ after.positions; count = after.count + List.length others },
          List.map (fun _ -> named) (List.tl words) )
    | _ -> (after, tws)
  in
  let run, act, relied = action run words (List.concat tws) in
  match take run.device run.traced act tws relied with
  | None -> Refused "no rule allows it"
  | Some traced -> Accepted { after with traced }

let complete_all run ranges =
  let finish verdict position =
    match verdict with
    | Refused _ -> verdict
    | Accepted run -> (
        match complete run.device run.traced position with
        | Some traced -> Accepted { run with traced }
        | None -> Refused (Printf.sprintf "operation %d is durable before what it waits for" position))
  in
  let expand text =
    match ints (String.split_on_char '-' text) with
    | [ one ] -> [ one ]
    | [ first; last ] -> List.init (last - first + 1) (fun at -> first + at)
    | _ -> raise (Malformed text)
  in
  List.fold_left finish (Accepted run) (List.concat_map expand ranges)

let fresh run why = function
  | Some traced -> Accepted { run with traced; positions = []; count = 0 }
  | None -> Refused why

let given run why = function Some traced -> Accepted { run with traced } | None -> Refused why

let outcome = function 'w' -> Whole | 'a' -> Absent | 't' -> TornUp | _ -> raise (Malformed "outcome")

let line run words =
  let n = int_of_string in
  match words with
  | "done" :: ranges -> complete_all run ranges
  | [ "rest" ] -> fresh run "not everything is durable" (rest run.device run.traced)
  | "cut" :: ends ->
      let outs = List.of_seq (Seq.map outcome (String.to_seq (String.concat "" ends))) in
      fresh run "the order of the operations does not allow this cut" (cut run.device run.traced outs)
  | [ "ack"; number ] ->
      given run "it is not durable" (take run.device run.traced (Acknowledge (n number)) [] [])
  | [ "has"; note; l; c ] ->
      let tab = table_of run.device run.traced.t_img in
      if t_read tab (n l) = n c then
        Accepted { run with notes = Notes.add (n note) (n l, n c, t_newest tab (n l)) run.notes }
      else Refused "the LPN does not have it"
  | [ "keeps"; note ] ->
      let l, c, number = Notes.find (n note) run.notes in
      given run "it is not durable" (unchanged run.device run.traced l c number)
  | "shown" :: contents ->
      let contents = List.mapi (fun l c -> (l, n c)) contents in
      if shown run.device run.traced contents then Accepted run else Refused "recovery should show something else"
  | _ -> step run words

let device without words =
  match ints words with
  | [ superblocks; blocks; pages; slots; open_words; reserve; lpns ] ->
      let has guard = Some guard <> without in
      ({ has; superblocks; blocks; pages; slots; open_words; reserve }, lpns)
  | _ -> raise (Malformed "device")

type counts = { mutable scripts : int; mutable commands : int; mutable steps : int; mutable cuts : int }

(* The lines of one script, until the first that is refused: its index and the reason. *)
let check counts without lines =
  let stack = ref [] and current = ref None and refused = ref None and at = ref 0 in
  let run () = match !current with Some run -> run | None -> raise (Malformed "no device") in
  let words_of text = List.filter (fun word -> word <> "") (String.split_on_char ' ' text) in
  let one text =
    match words_of text with
    | "device" :: words ->
        let device, lpns = device without words in
        current := Some { device; lpns; traced = t_init; positions = []; count = 0; notes = Notes.empty }
    | "command" :: _ -> counts.commands <- counts.commands + 1
    | [ "fork" ] -> stack := run () :: !stack
    | [ "back" ] ->
        current := Some (List.hd !stack);
        stack := List.tl !stack
    | [ "stay" ] -> stack := List.tl !stack
    | words -> (
        counts.steps <- counts.steps + 1;
        if List.hd words = "cut" then counts.cuts <- counts.cuts + 1;
        match try line (run ()) words with Malformed why -> Refused why with
        | Accepted run -> current := Some run
        | Refused why -> refused := Some (!at, why, run ()))
  in
  while !refused = None && !at < Array.length lines do
    one lines.(!at);
    incr at
  done;
  !refused

let idle () = { scripts = 0; commands = 0; steps = 0; cuts = 0 }

(* The guards without each of which the refused line is accepted: without it at this line, or else from the script's beginning, since
   what recovery concludes may be what the line is about. *)
let broken is_thorough lines at run =
  let words = List.filter (fun word -> word <> "") (String.split_on_char ' ' lines.(at)) in
  let without guard = { run with device = { run.device with has = (fun other -> other <> guard) } } in
  let here (_, guard) = try (match line (without guard) words with Accepted _ -> true | Refused _ -> false) with _ -> false in
  let upto = Array.sub lines 0 (at + 1) in
  let from_start (_, guard) = try check (idle ()) (Some guard) upto = None with _ -> false in
  match List.filter here guards with [] when is_thorough -> List.filter from_start guards | found -> found

let report is_thorough name lines (at, why, run) =
  let broken = List.map fst (broken is_thorough lines at run) in
  Printf.printf "%s, line %d: refused: %s\n  %s\n  guards without which it is accepted: %s\n%!" name (at + 2) why lines.(at)
    (if broken = [] then "none" else String.concat ", " broken)

let scripts file take =
  let input = if file = "-" then stdin else open_in file in
  let name = ref None and lines = ref [] in
  let finish () =
    Option.iter (fun name -> take name (Array.of_list (List.rev !lines))) !name;
    lines := []
  in
  (try
     while true do
       let text = input_line input in
       if String.length text > 7 && String.sub text 0 7 = "script " then (
         finish ();
         name := Some (String.sub text 7 (String.length text - 7)))
       else lines := text :: !lines
     done
   with End_of_file -> finish ());
  if file <> "-" then close_in input

let () =
  let is_thorough, files = List.partition (fun word -> word = "--guards") (List.tl (Array.to_list Sys.argv)) in
  let is_thorough = is_thorough <> [] in
  if files = [] then (
    prerr_endline "usage: accept [--guards] FILE...";
    exit 2);
  let counts = idle () and refused = ref 0 in
  let one name lines =
    counts.scripts <- counts.scripts + 1;
    match check counts None lines with
    | None -> ()
    | Some found ->
        incr refused;
        report is_thorough name lines found
  in
  (try List.iter (fun file -> scripts file one) files
   with Sys_error why -> prerr_endline ("accept: " ^ why); exit 2);
  Printf.printf "%d scripts, %d commands, %d steps, %d cuts: %s; %.0f s of processor time\n" counts.scripts counts.commands
    counts.steps counts.cuts
    (if !refused = 0 then "all accepted" else Printf.sprintf "%d scripts refused" !refused)
    (Sys.time ());
  exit (if !refused = 0 then 0 else 1)
