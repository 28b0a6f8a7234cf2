//! stub
/// stub
#[derive(Debug, clap::Args)]
pub struct Args {}
/// stub
/// # Errors
/// stub
pub fn command(_: &Args) -> Result<(), crate::failure::Failure> { Ok(()) }
