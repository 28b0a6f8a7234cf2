//! The program as its users see it: arguments in, text, JSON and exit codes out.

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
mod kit;
mod manual;
mod measuring;
mod modelled;
mod models;
mod recording;
mod results;
mod service;
mod sharing;
mod sweeping;
mod torture;
mod torture_over_tcp;
mod traces;
mod volumes;
