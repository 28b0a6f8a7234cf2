//! The extension in processes that fork, and that get frequent signals.
//!
//! A server and the process under test are this binary, run again: `fork` copies the whole process,
//! and signals interrupt all of its calls.

mod child;
mod forks;
mod served;
mod signals;

use served::Server;

/// Runs a role in a separate process, beside a served volume.
fn in_a_process(part: &str) {
    let server = Server::start();
    let ended = served::spawn(&format!("{part} {}", server.address)).wait();
    assert!(ended.expect("it was started").success(), "{part}");
}

#[test]
fn children_of_a_process_with_an_open_database_open_their_own_and_all_write() {
    in_a_process("pool");
}

#[test]
fn an_inherited_connection_is_an_error_in_the_child_and_unharmed_in_the_parent() {
    in_a_process("inherited");
}

#[test]
fn a_log_stays_as_long_as_a_child_writes_to_it() {
    in_a_process("log");
}

#[test]
fn a_child_may_connect_by_itself_and_not_use_its_parents_connection() {
    in_a_process("client");
}

#[test]
fn signals_fail_no_opening_and_no_transaction() {
    in_a_process("signals");
}

/// Not a test: the entry point of the processes.
#[test]
#[ignore = "a part for the processes that other tests start"]
fn process() {
    let (part, argument) = served::part();
    let uri = format!("file:app.db?vfs=remap&device={argument}");
    match part.as_str() {
        "server" => served::serve(argument.as_ref()),
        "pool" => forks::pool(&uri),
        "inherited" => forks::inherited(&uri),
        "log" => forks::log(&uri),
        "client" => forks::client(&argument),
        "signals" => signals::openings_and_transactions(&uri),
        part => panic!("there is no part {part}"),
    }
}
