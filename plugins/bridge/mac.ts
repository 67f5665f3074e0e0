// Which hardware address does the container's interface get?
import { pickCniArgs } from '../../src/cni/cni-args.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isUnicastMac, parseMac, renderMac } from '../../src/net/mac.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { BridgeConf } from './config.ts';

/**
 * The requested address in colon notation, or undefined when the kernel may choose. The `mac` capability overrides
 * `args.cni.mac`, which overrides `MAC` of `CNI_ARGS`.
 * @throws CniError 7 for an address that an interface cannot have
 */
export function requestedMac({ conf, args }: Call<BridgeConf>): string | undefined {
  const text = conf.runtimeConfig?.mac || conf.args?.cni?.mac || pickCniArgs(args, ['MAC']).MAC;
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
