// Do plugins that hand a device of the host to a container end up like the reference's, except for intentional differences?

import { describeTwins } from './describe.ts';

describeTwins('devices');
