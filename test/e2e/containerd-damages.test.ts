// Does the daemon notice every damage to a pod of containerd, repair what it can, and leave alone what is sound?
import { setDefaultTimeout } from 'bun:test';
import { requiresContainerd } from '../helpers/containerd.ts';
import { onContainerd } from '../helpers/damaged-nodes.ts';
import { deadline } from '../helpers/deadline.ts';
import { testRepairing } from '../helpers/repairing.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

setDefaultTimeout(deadline(420_000));

describeRoot(
  'pods of containerd under a daemon that repairs',
  () => testRepairing(onContainerd),
  requires('ip', 'nft', 'tc', 'ss'),
  requiresContainerd(),
);
