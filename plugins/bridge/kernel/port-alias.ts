// Which alias identifies the ports that carry the gateway of a VLAN?

/** Alias of both ends of the pairs that this plugin creates to carry a VLAN's gateway. */
export const GATEWAY_PORT_ALIAS = 'catena:gateway';
