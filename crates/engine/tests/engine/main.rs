//! Operators and functions against oracles that apply the rules by brute force.

mod analytic;
mod by_hand;
mod estimate;
mod function_examples;
mod join;
mod pattern;
mod running;
mod streams;
mod substream_join;
mod windows;
