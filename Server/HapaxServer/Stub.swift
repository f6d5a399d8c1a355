import Configuration
import Crypto
import GRDB
import Hummingbird
import ServiceLifecycle
