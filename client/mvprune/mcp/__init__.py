"""The service for agents: a server of the Model Context Protocol (MCP), see `mvpctl mcp`."""
