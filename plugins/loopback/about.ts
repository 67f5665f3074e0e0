// What can tools know about loopback without running it?
import { aboutLink } from '../../src/cni/link-about.ts';
import { LoopbackConf } from './config.ts';

/** The loopback plugin, as `catena validate` and the published schemas see it. */
export const about = aboutLink({ kind: 'main', capabilities: [], config: LoopbackConf });
