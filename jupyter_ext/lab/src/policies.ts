/** How instance groups divide their slots, in words. */

export const POLICIES: readonly (readonly [string, string])[] = [
  ['fairshare', 'fair share by priority'],
  ['priority', 'higher priority first'],
  ['fifo', 'first come, first served']
];

/** In words; one that is not known here as the server calls it. */
export function policyOf(name: string): string {
  return POLICIES.find(([key]) => key === name)?.[1] ?? name;
}
