//! The integration tests of cli, in one program: arguments in, text, JSON and exit codes out.
//! `operate` and `kill` use the program as a server.

mod arguments;
mod campaign;
mod comparison;
mod dedup;
mod deduplication;
mod doors;
mod experiments;
mod files;
mod folders;
mod images;
mod kill;
mod kit;
mod manual;
mod measuring;
mod modelled;
mod models;
mod operate;
mod recording;
mod results;
mod served;
mod service;
mod sharing;
mod sweeping;
mod torture;
mod torture_over_tcp;
mod traces;
mod volumes;
