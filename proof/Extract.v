(** The checker as an OCaml program. docs/proof.md says what this assumes. *)
From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlNatInt.
From Proof Require Import Media Recovery Firmware Accept.

(** Images are finite maps there (images.ml). *)
Extract Inductive image => "(cell, word) Images.t" ["Images.none"] "Images.none".
Extract Constant cells => "(fun i a -> Images.cell Erased i a.sb_of a.blk_of a.off_of)".
Extract Constant blank => "Images.blank".
Extract Constant set_cell => "(fun a c i -> Images.set_cell Erased i a.sb_of a.blk_of a.off_of c)".
Extract Constant set_block => "(fun sb blk c i -> Images.set_block i sb blk c)".

(** Different words have different numbers. *)
Extract Constant words => "
  (fun i w -> Images.word Zero i (match w with
    | Life n -> 8 * n | EntA n -> 8 * n + 1 | EntB n -> 8 * n + 2 | DeaA n -> 8 * n + 3
    | DeaB n -> 8 * n + 4 | OpenW n -> 8 * n + 5 | AbortW n -> 8 * n + 6 | Other n -> 8 * n + 7))".
Extract Constant set_word => "
  (fun w v i -> Images.set_word i (match w with
    | Life n -> 8 * n | EntA n -> 8 * n + 1 | EntB n -> 8 * n + 2 | DeaA n -> 8 * n + 3
    | DeaB n -> 8 * n + 4 | OpenW n -> 8 * n + 5 | AbortW n -> 8 * n + 6 | Other n -> 8 * n + 7) v)".

Extraction "model.ml" t_init take complete cut rest unchanged shown free_waits covers table_of t_newest t_read head_ok.
