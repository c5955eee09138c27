//! The request distribution of YCSB's core workloads (Cooper et al., "Benchmarking Cloud Serving Systems with
//! YCSB", SoCC 2010): zipfian with theta 0.99 over 10^10 ranks, which a hash spreads over the keys, so that
//! popular keys are not neighbours. Ranks are drawn with the method of Gray et al., "Quickly Generating
//! Billion-Record Synthetic Databases", SIGMOD 1994.

use crate::measure::mix;

const THETA: f64 = 0.99;
const RANKS: f64 = 1e10;

pub struct Zipfian {
    zeta: f64,
    eta: f64,
    state: u64,
}

impl Zipfian {
    pub fn new(seed: u64) -> Zipfian {
        let zeta = zeta();
        let first_two = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / RANKS).powf(1.0 - THETA)) / (1.0 - first_two / zeta);
        Zipfian { zeta, eta, state: mix(seed) }
    }

    /// 0 is the most popular rank.
    fn rank(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        let uniform = (mix(self.state) >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            (RANKS * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        fnv(self.rank()) % n
    }
}

/// The sum of all `rank^-THETA`: the first terms, and the rest by the Euler-Maclaurin formula.
fn zeta() -> f64 {
    const EXACT: u32 = 1000;
    let (from, to) = (f64::from(EXACT), RANKS);
    let exact: f64 = (1..EXACT).map(|rank| f64::from(rank).powf(-THETA)).sum();
    let integral = (to.powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
    let ends = f64::midpoint(from.powf(-THETA), to.powf(-THETA));
    exact + integral + ends + THETA / 12.0 * from.powf(-THETA - 1.0)
}

/// FNV-1a of the eight bytes.
fn fnv(n: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    n.to_le_bytes().into_iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_equals_precomputed_ycsb_constant() {
        assert!((zeta() - 26.469_028_201_783_02).abs() < 1e-9, "{}", zeta());
    }

    #[test]
    fn rank_frequencies_match_zipfian_distribution() {
        const DRAWS: u32 = 1_000_000;
        let mut zipfian = Zipfian::new(1);
        let mut counts = [0u32; 100];
        for _ in 0..DRAWS {
            if let Some(count) = counts.get_mut(zipfian.rank() as usize) {
                *count += 1;
            }
        }
        // The method is exact for the first two ranks and approximate for all later ones.
        for (rank, tolerance) in [(0, 0.02), (1, 0.03), (99, 0.2)] {
            let expected = f64::from(rank + 1).powf(-THETA) / zeta();
            let measured = f64::from(counts[rank as usize]) / f64::from(DRAWS);
            assert!((measured / expected - 1.0).abs() < tolerance, "rank {rank}: {measured}, not {expected}");
        }
    }
}
