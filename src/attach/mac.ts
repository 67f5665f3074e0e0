// Which hardware address does the container's interface get?
import { type AttachmentId, digestOf, renderOwner } from '../cni/attachment.ts';
import { pickCniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isUnicastMac, parseMac, renderMac } from '../net/mac.ts';
import type { Call } from '../plugin/define.ts';

/** Where a configuration may contain a hardware address besides a key of its own. */
interface MacSources {
  readonly args?: { readonly cni?: { readonly mac?: string | undefined } | undefined } | undefined;
  readonly runtimeConfig?: { readonly mac?: string | undefined } | undefined;
}

/**
 * The requested address in colon notation, or undefined when the kernel may choose. The `mac` capability overrides
 * `args.cni.mac`, which overrides `MAC` of `CNI_ARGS`, which overrides the configured one.
 * @param configured the value of the plugin's own key, if it has one
 * @throws CniError 7 for an address that an interface cannot have
 */
export function requestedMac({ conf, args }: Call<MacSources>, configured?: string): string | undefined {
  const text = conf.runtimeConfig?.mac || conf.args?.cni?.mac || pickCniArgs(args, ['MAC']).MAC || configured;
  if (!text) return undefined;
  const bytes = tryParse(text);
  if (bytes === undefined || !isUnicastMac(bytes)) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use hardware address "${text}": expected six unicast bytes such as "0a:58:0a:01:02:03"`,
    );
  }
  return renderMac(bytes);
}

/**
 * The address of an attachment for which none is requested: the same at each ADD, so that neighbours and DHCP servers recognise the
 * container, and locally administered. 46 bits are derived.
 * @param segment hardware address of the device below, which no other node on the link has: container ids may repeat between nodes
 */
export function derivedMac(attachment: AttachmentId, segment: string): string {
  const digest = BigInt(`0x${digestOf(`${renderOwner(attachment)} ${segment}`)}`);
  const mixed = mix((digest >> 64n) ^ (digest & MASK));
  const bytes = Uint8Array.from({ length: 6 }, (_, i) => Number((mixed >> BigInt(8 * i)) & 0xffn));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}

const MASK = (1n << 64n) - 1n;

/** Spreads a digest, whose last bytes reach only some of its bits, over all bits: the finalizer of MurmurHash3. */
function mix(value: bigint): bigint {
  let bits = value;
  for (const factor of [0xff51afd7ed558ccdn, 0xc4ceb9fe1a85ec53n]) {
    bits = ((bits ^ (bits >> 33n)) * factor) & MASK;
  }
  return bits ^ (bits >> 33n);
}

function tryParse(text: string): Uint8Array | undefined {
  try {
    return parseMac(text);
  } catch {
    return undefined;
  }
}
