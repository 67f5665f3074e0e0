// Which hardware address does the tap get?
import { pickCniArgs } from '../../src/cni/cni-args.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isUnicastMac, parseMac, renderMac } from '../../src/net/mac.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { TapConf } from './config.ts';

/**
 * The requested address in colon notation, or undefined when the kernel may choose. The capability `mac` overrides `MAC` of
 * `CNI_ARGS`, which overrides `mac`.
 * @throws CniError 7 for an address that an interface cannot have
 */
export function requestedMac({ conf, args }: Call<TapConf>): string | undefined {
  const text = conf.runtimeConfig?.mac || pickCniArgs(args, ['MAC']).MAC || conf.mac;
  if (!text) return undefined;
  const bytes = tryParse(text);
  if (bytes !== undefined && isUnicastMac(bytes)) return renderMac(bytes);
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use hardware address "${text}": expected six unicast bytes such as "0a:58:0a:01:02:03"`,
  );
}

function tryParse(text: string): Uint8Array | undefined {
  try {
    return parseMac(text);
  } catch {
    return undefined;
  }
}
