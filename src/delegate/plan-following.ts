// Which networks does a running pod lose and get when its annotation has changed?
import type { RecordedNetwork } from './record.ts';
import type { Wanted } from './wanted.ts';

/** The difference between what a pod has and what its annotation selects. */
export interface Following {
  readonly going: readonly RecordedNetwork[];
  readonly coming: readonly Wanted[];
}

/**
 * Compares networks with selections, element by element: a changed request for the same network is another element. The order
 * does not matter. Networks that no annotation selected stay.
 */
export function planFollowing(networks: readonly RecordedNetwork[], wanted: readonly Wanted[]): Following {
  const coming = [...wanted];
  const going = networks.filter(({ asked }) => {
    if (asked === undefined) return false;
    const index = coming.findIndex(one => one.asked === asked);
    if (index >= 0) coming.splice(index, 1);
    return index < 0;
  });
  return { going, coming };
}
