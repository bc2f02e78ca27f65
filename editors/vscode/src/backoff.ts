// When to start a server again that ended by itself.

const PAUSES_S = [1, 2, 4, 8];
/** A server that lived this long had started well: what ended it is counted afresh. */
const STEADY_S = 60;

export interface Verdict {
  /** Ends in a row, this one included. */
  failures: number;
  /** Seconds to wait before the next start; undefined: give up and say so. */
  pauseS: number | undefined;
}

/** After an end that nobody asked for, `livedS` seconds after the start and `failures` such ends before it. */
export function afterEnd(failures: number, livedS: number): Verdict {
  const before = livedS >= STEADY_S ? 0 : failures;
  return { failures: before + 1, pauseS: PAUSES_S[before] };
}
