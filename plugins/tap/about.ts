// What can tools know about tap without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { TapConf, validateTapConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'makes a tap or macvtap in the container, for a program that sends and receives frames',
  capabilities: ['mac'],
  config: TapConf,
  validate: validateTapConf,
});
