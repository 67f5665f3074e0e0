// What does a plugin author import?
export { pickCniArgs } from '../cni/env.ts';
export { CniError, ErrorCode } from '../cni/errors.ts';
export type { Result, ResultDns, ResultInterface, ResultIp, ResultRoute } from '../cni/result.ts';
export { type AttachmentKey, PluginConfig } from '../cni/schemas.ts';
export { type Cidr, type Ip, parseCidr, parseIp, renderCidr, renderIp } from '../net/ip.ts';
export { type Address, addAddress, listAddresses, removeAddress } from '../netlink/rtnl/addr.ts';
export {
  createLink,
  findLink,
  getLink,
  type Link,
  type LinkChange,
  listLinks,
  type NewLink,
  removeLink,
  setLink,
} from '../netlink/rtnl/link.ts';
export { addRoute, listRoutes, type Route, removeRoute } from '../netlink/rtnl/route.ts';
export type { NetlinkSocket } from '../netlink/socket.ts';
export { isNetlinkError, NetlinkError } from '../netlink/socket.ts';
export { Errno } from '../sys/errno.ts';
export { inNetns, type Netns } from '../sys/netns.ts';
export { ensureSysctl, findSysctl, readSysctl, writeSysctl } from '../sys/sysctl.ts';
export type { KeptAttachments } from './define.ts';
export {
  type Call,
  type Delegate,
  type Done,
  definePlugin,
  nothingToDo,
  type PluginDefinition,
} from './define.ts';
export { runPlugin } from './run.ts';
export { confirm, tryAll } from './steps.ts';
