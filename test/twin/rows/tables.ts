// Which rows make up the table?

import {
  type Need,
  requiresUpperKind,
  requiresVlanDevices,
  requiresVlanFiltering,
  requiresVrf,
} from '../../helpers/skip.ts';
import type { TableName } from '../differences.ts';
import type { TwinRow } from '../row.ts';
import { BRIDGE_ROWS } from './bridge.ts';
import { CHAIN_ROWS } from './chains.ts';
import { DEVICE_ROWS } from './devices.ts';
import { GUARD_ROWS } from './guards.ts';
import { IPAM_ROWS } from './ipam.ts';
import { MACVLAN_ROWS } from './macvlans.ts';
import { PORT_ROWS } from './ports.ts';
import { PTP_ROWS_AND_LOOPBACK } from './ptp.ts';
import { REFUSED_ROWS } from './refused.ts';
import { UPPER_ROWS } from './uppers.ts';
import { VLAN_ROWS } from './vlans.ts';
import { VRF_ROWS } from './vrfs.ts';

/** One part: each has a test file of its own, so that they run concurrently. */
export interface Table {
  readonly name: TableName;
  readonly rows: readonly TwinRow[];
  /** Requirements besides the reference. */
  readonly needs?: () => Need;
}

/** All parts. */
export const TABLES: readonly Table[] = [
  { name: 'links', rows: [...BRIDGE_ROWS, ...IPAM_ROWS, ...PTP_ROWS_AND_LOOPBACK, ...REFUSED_ROWS] },
  { name: 'chains', rows: [...CHAIN_ROWS, ...GUARD_ROWS] },
  { name: 'ports', rows: PORT_ROWS },
  { name: 'devices', rows: DEVICE_ROWS },
  { name: 'vlans', rows: VLAN_ROWS, needs: requiresVlanFiltering },
  { name: 'macvlans', rows: MACVLAN_ROWS, needs: () => requiresUpperKind('macvlan') },
  {
    name: 'uppers',
    rows: UPPER_ROWS,
    needs: () => requiresVlanDevices() ?? requiresUpperKind('ipvlan'),
  },
  { name: 'vrfs', rows: VRF_ROWS, needs: requiresVrf },
];
