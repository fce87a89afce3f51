// SPDX-License-Identifier: Apache-2.0
// Prints an address of a function that is inlined into another, then waits for the end of its standard input.
use std::io::{Read, Write};

mod inner {
    pub struct Thing;
    impl Thing {
        #[inline(always)]
        pub fn leaf(n: u64) -> u64 {
            let pc: u64;
            unsafe { std::arch::asm!("call 2f", "2: pop {}", out(reg) pc) }; // leaf is here
            std::hint::black_box(n);
            pc
        }
    }
    #[inline(never)]
    pub fn outer(n: u64) -> u64 {
        let pc = Thing::leaf(n); // outer calls leaf
        std::hint::black_box(n + 1);
        pc
    }
}

fn main() {
    println!("inlined {:x}", inner::outer(3));
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}
