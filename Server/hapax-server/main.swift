import Foundation
import HapaxServer

exit(await HapaxServer.main(arguments: Array(CommandLine.arguments.dropFirst()), environment: ProcessInfo.processInfo.environment))
