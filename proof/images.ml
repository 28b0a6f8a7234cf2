(* Images as finite maps: what extraction puts in place of the model's functions.

   A block has a cell for all pages that are not in its map, so that a block can be filled at once. Absent: the meaning of cells and
   words. *)

module Table = Map.Make (Int)

type ('cell, 'word) t = { blocks : ('cell * 'cell Table.t) Table.t; words : 'word Table.t }

let blank = { blocks = Table.empty; words = Table.empty }

(* Blocks of a superblock and pages of a block are fewer than this. *)
let most = 1 lsl 20

let key superblock block =
  assert (block < most);
  (superblock * most) + block

let cell erased image superblock block page =
  match Table.find_opt (key superblock block) image.blocks with
  | None -> erased
  | Some (rest, pages) -> Option.value (Table.find_opt page pages) ~default:rest

let set_cell erased image superblock block page cell =
  let change found =
    let rest, pages = Option.value found ~default:(erased, Table.empty) in
    Some (rest, Table.add page cell pages)
  in
  { image with blocks = Table.update (key superblock block) change image.blocks }

let set_block image superblock block cell =
  { image with blocks = Table.add (key superblock block) (cell, Table.empty) image.blocks }

let word zero image at = Option.value (Table.find_opt at image.words) ~default:zero
let set_word image at word = { image with words = Table.add at word image.words }
