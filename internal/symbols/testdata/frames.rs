// SPDX-License-Identifier: Apache-2.0
// Prints addresses of its own functions, then waits for the end of its standard input.
use std::io::{Read, Write};

mod inner {
    pub struct Thing;
    impl Thing {
        #[inline(never)]
        pub fn work(n: u32) -> u32 {
            unsafe { std::ptr::read_volatile(&n) + 1 }
        }
    }
}

fn main() {
    println!("work {:x}", inner::Thing::work as fn(u32) -> u32 as usize);
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}
