// Compiled before the server, whose files would all say that some module is missing.
#if !Server
#error("The server is built with make, or with: swift build --traits Server,Service")
#endif
