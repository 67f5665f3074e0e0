// Which hardware address does the container's interface get?
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

function tryParse(text: string): Uint8Array | undefined {
  try {
    return parseMac(text);
  } catch {
    return undefined;
  }
}
