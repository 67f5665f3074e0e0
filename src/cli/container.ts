// Which attachment of a container does a command line mean?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { RecordedAttachment } from '../node/facts.ts';
import type { KnownContainer } from '../running/container.ts';

/**
 * The one attachment of a container to a network.
 * @throws CniError 3 if there is none, or several
 */
export function pickAttachment(
  { containerId, attachments }: KnownContainer,
  network: string,
  ifname: string | undefined,
): RecordedAttachment {
  const matching = attachments.filter(
    ({ known }) => known.network === network && (ifname === undefined || known.ifname === ifname),
  );
  const [one, ...more] = matching;
  if (one && more.length === 0) return one;
  const names = (list: readonly RecordedAttachment[]) =>
    list.map(({ known }) => `${known.network} ${known.ifname}`).join(', ');
  throw new CniError(
    ErrorCode.unknownContainer,
    one
      ? `Cannot choose between the attachments of container "${containerId}": ${names(matching)}; name the interface with --ifname`
      : `Cannot find an attachment of container "${containerId}" to network "${network}"; it has ${names(attachments)}`,
  );
}
