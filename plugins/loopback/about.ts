// What do tools know of loopback without running it?
import { aboutLink } from '../../src/cni/link-about.ts';
import { LoopbackConf } from './config.ts';

/** The loopback link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({ kind: 'main', capabilities: [], config: LoopbackConf });
