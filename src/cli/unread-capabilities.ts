// Does any plugin of a conflist receive what was given with --cap?
import type { Conflist } from '../chain/config/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { didYouMean, type JsonObject } from '../cni/json.ts';

/** A warning for each capability argument that no plugin declares: the chain runs as if the argument were missing. */
export function findUnread(list: Conflist, given: JsonObject): CniError[] {
  const declared = new Set(
    list.plugins.flatMap(({ capabilities }) => Object.keys(capabilities).filter(name => capabilities[name])),
  );
  const unread = Object.keys(given).filter(name => !declared.has(name));
  return unread.map(name => {
    const near = didYouMean(name, declared);
    const text = `Cannot pass capability "${name}": no plugin of network "${list.name}" declares it${near}`;
    return new CniError(ErrorCode.invalidConfig, text);
  });
}
