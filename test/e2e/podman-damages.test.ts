// Does the daemon notice every damage to a container of podman, repair what it can, and leave alone what is sound?
import { setDefaultTimeout } from 'bun:test';
import { onPodman } from '../helpers/damaged-nodes.ts';
import { deadline } from '../helpers/deadline.ts';
import { requiresPodman } from '../helpers/podman.ts';
import { testRepairing } from '../helpers/repairing.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

setDefaultTimeout(deadline(420_000));

describeRoot(
  'containers of podman under a daemon that repairs',
  () => testRepairing(onPodman),
  requires('ip', 'nft', 'tc', 'ss'),
  requiresPodman(),
);
