// What does a server say about a message, or about an address in it?
import { textOf } from '../../codec/values.ts';
import { Code, findOption, type Options } from './options.ts';

/** RFC 9915, section 21.13. */
export const Status = {
  success: 0,
  unspecFail: 1,
  noAddrsAvail: 2,
  noBinding: 3,
  notOnLink: 4,
} as const;

const MEANINGS: Readonly<Record<number, string>> = {
  [Status.unspecFail]: 'it failed without a reason',
  [Status.noAddrsAvail]: 'it has no free address',
  [Status.noBinding]: 'it does not know the lease',
  [Status.notOnLink]: 'the address does not belong on this network',
};

/** What a status says; without the option, all is well. */
export interface StatusSaid {
  readonly code: number;
  /** For an error: what the code means, and the server's own words. */
  readonly text: string;
}

/** The status among options of a message, an identity association or an address. A malformed one counts as unspecific failure. */
export function statusIn(options: Options): StatusSaid {
  const value = findOption(options, Code.statusCode);
  if (value === undefined) return { code: Status.success, text: '' };
  const [high = 0, low = Status.unspecFail] = value;
  const code = value.length < 2 ? Status.unspecFail : high * 256 + low;
  const said = textOf(value.subarray(2));
  return { code, text: `${MEANINGS[code] ?? `status ${code}`}${said ? ` ("${said}")` : ''}` };
}
